-- Images at the edge.

-- Images: asked for, uploaded, announced, taken to the cloud. The bytes are in the object store.
-- session_id has no foreign key: an image may come before its session, and is bound then (C-26).
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
  constraint media_objects_pkey primary key (id),
  constraint media_objects_object_key_key unique (object_key),
  constraint media_objects_stored_is_whole check (
    upload_status <> 'stored' or (size_bytes is not null and stored_at is not null))
);
create index media_objects_session_idx on media_objects (tenant_id, session_id);
create index media_objects_device_idx on media_objects (tenant_id, device_id, captured_at desc);
create unique index media_objects_request_key on media_objects (tenant_id, device_id, request_id)
  where request_id is not null;
grant select, insert, update, delete on media_objects to farmiq_edge;
