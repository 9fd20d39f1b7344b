-- Images: asked for, uploaded, announced, taken to the cloud. The bytes are in the object store.
-- session_id has no foreign key: an image may come before its session, and is bound then (C-26).
-- `declared_…` was said when the address was asked for, `announced_…` by image.captured; mime_type,
-- size_bytes and sha256 of a stored one are what was found. What was uploaded and is not what was
-- said lies under aside_key, with the reason; its row waits for the right bytes as `missing`.
create table media_objects (
  id uuid not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  station_id text,
  session_id uuid,
  trace_id text,
  request_id uuid,
  bucket text not null,
  object_key text not null,
  etag text,
  mime_type text not null constraint media_objects_mime_type_known
    check (mime_type in ('image/jpeg', 'image/png', 'image/webp')),
  size_bytes bigint constraint media_objects_size_not_negative check (size_bytes >= 0),
  sha256 text constraint media_objects_sha256_hex check (sha256 ~ '^[0-9a-f]{64}$'),
  captured_at timestamptz not null,
  created_at timestamptz not null default now(),
  upload_status text not null default 'presigned' constraint media_objects_upload_status_known
    check (upload_status in ('presigned', 'stored', 'missing')),
  announced_at timestamptz,
  stored_at timestamptz,
  synced_at timestamptz,
  presigned_at timestamptz,
  check_at timestamptz,
  check_count int not null default 0,
  declared_type text,
  declared_size_bytes bigint,
  declared_sha256 text,
  announced_type text,
  announced_size_bytes bigint,
  announced_sha256 text,
  refused_at timestamptz,
  refused_reason text,
  aside_key text,
  stored_event_id uuid,
  sync_at timestamptz,
  sync_count int not null default 0,
  sync_error text,
  aside_bytes bigint constraint media_objects_aside_not_negative check (aside_bytes >= 0),
  -- What an image without a session is for, as its announcement said.
  purpose text,
  constraint media_objects_pkey primary key (id),
  constraint media_objects_object_key_key unique (object_key),
  constraint media_objects_stored_is_whole check (
    upload_status <> 'stored' or (size_bytes is not null and stored_at is not null))
);
-- When its object is to be looked at next, by the edge's clock; null: nothing is to be expected.
create index media_objects_check_idx on media_objects (check_at) where check_at is not null;
-- What the cloud has not got yet. sync_at is when it is to be tried next.
create index media_objects_unsynced_idx on media_objects (stored_at desc)
  where upload_status = 'stored' and synced_at is null;
-- What is new since a moment, for backups.
create index media_objects_stored_idx on media_objects (stored_at) where upload_status = 'stored';
create index media_objects_session_idx on media_objects (tenant_id, session_id);
create index media_objects_device_idx on media_objects (tenant_id, device_id, captured_at desc);
create unique index media_objects_request_key on media_objects (tenant_id, device_id, request_id)
  where request_id is not null;
-- Pictures of empty scales: few among many.
create index media_objects_purpose_idx on media_objects (purpose)
  where purpose is not null;
grant select, insert, update, delete on media_objects to farmiq_edge;
