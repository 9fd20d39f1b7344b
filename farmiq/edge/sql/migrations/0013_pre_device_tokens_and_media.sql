-- Devices get a token for HTTP; images get what the media store has to remember of them.

-- By its token a device asks where to upload an image; who was registered before there were tokens
-- has none until it is rotated.
alter table devices add column token_sha256 bytea;
create index devices_token_idx on devices (token_sha256);

alter table media_objects
  add column presigned_at timestamptz,
  add column check_at timestamptz,
  add column check_count int not null default 0,
  add column declared_type text,
  add column declared_size_bytes bigint,
  add column declared_sha256 text,
  add column announced_type text,
  add column announced_size_bytes bigint,
  add column announced_sha256 text,
  add column refused_at timestamptz,
  add column refused_reason text,
  add column aside_key text,
  add column stored_event_id uuid,
  add column sync_at timestamptz,
  add column sync_count int not null default 0,
  add column sync_error text;
-- When its object is to be looked at next, by the edge's clock; null: nothing is to be expected.
create index media_objects_check_idx on media_objects (check_at) where check_at is not null;
-- What the cloud has not got yet. sync_at is when it is to be tried next.
create index media_objects_unsynced_idx on media_objects (stored_at desc)
  where upload_status = 'stored' and synced_at is null;
