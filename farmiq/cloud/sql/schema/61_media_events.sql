-- Images that are in an edge's store, as announced on the bus.
create table media_events (
  tenant_id text not null,
  event_id uuid not null,
  event_type text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text,
  session_id uuid,
  occurred_at timestamptz not null,
  trace_id text not null,
  payload jsonb not null,
  stored_at timestamptz not null default clock_timestamp(),
  media_id uuid generated always as ((payload ->> 'media_id')::uuid) stored,
  path text generated always as (payload ->> 'path') stored,
  mime_type text generated always as (payload ->> 'mime_type') stored,
  size_bytes bigint generated always as ((payload ->> 'size_bytes')::numeric::bigint) stored,
  bucket text generated always as (payload ->> 'bucket') stored,
  object_key text generated always as (payload ->> 'object_key') stored,
  sha256 text generated always as (payload ->> 'sha256') stored,
  clock_suspect boolean not null default false,
  constraint media_events_pkey primary key (tenant_id, event_id)
);
create index media_events_occurred_at_idx on media_events (tenant_id, occurred_at desc);
create index media_events_media_id_idx on media_events (tenant_id, media_id);

alter table media_events enable row level security;
alter table media_events force row level security;
create policy "Users see in their company" on media_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy media_events_service on media_events for all to farmiq_service
  using (true) with check (true);
grant select on media_events to authenticated;
grant select, insert on media_events to farmiq_service;
