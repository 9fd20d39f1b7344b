-- Images of the edges: told of by media.stored (told_at), asked where to put them (asked_at), whole
-- and verified in the cloud's bucket (stored_at). Either may come first.
create table media_objects (
  tenant_id text not null,
  media_id uuid not null,
  farm_id text,
  barn_id text,
  device_id text,
  station_id text,
  session_id uuid,
  mime_type text,
  size_bytes bigint,
  sha256 text,
  captured_at timestamptz,
  object_key text,
  etag text,
  told_at timestamptz,
  asked_at timestamptz,
  stored_at timestamptz,
  created_at timestamptz not null default clock_timestamp(),
  constraint media_objects_pkey primary key (tenant_id, media_id),
  constraint media_objects_stored_is_whole check (
    stored_at is null or (object_key is not null and size_bytes is not null
      and sha256 is not null and mime_type is not null))
);
create index media_objects_session_idx on media_objects (tenant_id, session_id);
create index media_objects_device_idx on media_objects (tenant_id, device_id, captured_at desc);
create index media_objects_captured_at_idx on media_objects
  (tenant_id, captured_at desc, media_id desc);

alter table media_objects enable row level security;
alter table media_objects force row level security;
create policy "Users see in their company" on media_objects for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy media_objects_service on media_objects for all to farmiq_service
  using (true) with check (true);
grant select on media_objects to authenticated;
grant select, insert, update on media_objects to farmiq_service;
