-- The registry: which device stands where, and how it proves to the broker that it is itself. Only
-- hashes of its secret and its token are kept. A revoked device stays, so that its name is never
-- given twice.
create table devices (
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  station_id text,
  kind text not null default 'sensor' constraint devices_kind_known
    check (kind in ('sensor', 'silo', 'feeder', 'station', 'gateway', 'other')),
  firmware text,
  place text,
  zone text,
  wants_receipts boolean not null default false,
  derive_intake boolean not null default false,
  heartbeat_s int not null default 60 constraint devices_heartbeat_positive
    check (heartbeat_s between 1 and 604800),
  broker_user text not null constraint devices_broker_user_key unique,
  secret_bcrypt text not null,
  secret_pbkdf2 text not null,
  created_at timestamptz not null default now(),
  rotated_at timestamptz,
  revoked_at timestamptz,
  token_sha256 bytea,
  -- Whether the cloud was last told that this device is revoked.
  revocation_told boolean not null default false,
  constraint devices_pkey primary key (tenant_id, device_id)
);
-- One device at a station; the place of a revoked one is free again.
create unique index devices_station_key on devices (tenant_id, farm_id, barn_id, station_id)
  where station_id is not null and revoked_at is null;
-- By its token a device asks where to upload an image; who was registered before there were tokens
-- has none until it is rotated.
create index devices_token_idx on devices (token_sha256);
grant select, insert, update on devices to farmiq_edge;

create trigger devices_changed after insert or update or delete on devices
  for each statement execute function fn_devices_changed();
