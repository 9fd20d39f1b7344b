-- The registry of devices: where each stands, how it is, what it was told to do.

-- The row is locked until the change commits, so versions become visible in their order.
create or replace function fn_devices_changed() returns trigger
language plpgsql as $$
begin
  update devices_version set version = version + 1;
  return null;
end $$;

-- Grows with every change of the registry: whoever keeps a copy looks here whether it is current.
create table devices_version (
  only_row boolean not null default true
    constraint devices_version_pkey primary key
    constraint devices_version_only_row check (only_row),
  version bigint not null
);
insert into devices_version (version) values (0);
grant select, update on devices_version to farmiq_edge;

-- The registry: which device stands where, and how it proves to the broker that it is itself. Only
-- hashes of its secret are kept. A revoked device stays, so that its name is never given twice.
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
  constraint devices_pkey primary key (tenant_id, device_id)
);
-- One device at a station; the place of a revoked one is free again.
create unique index devices_station_key on devices (tenant_id, farm_id, barn_id, station_id)
  where station_id is not null and revoked_at is null;
grant select, insert, update on devices to farmiq_edge;

create trigger devices_changed after insert or update or delete on devices
  for each statement execute function fn_devices_changed();

-- How each device is, by the edge's own clock (C-44). `state` is what we make of it, `said_state`
-- what its last status said, `told_state` what the cloud was told last (C-103).
create table device_state (
  tenant_id text not null,
  device_id text not null,
  state text not null constraint device_state_state_known
    check (state in ('online', 'late', 'offline', 'error')),
  since timestamptz not null,
  last_seen_at timestamptz not null,
  told_state text constraint device_state_told_state_known
    check (told_state in ('online', 'offline', 'error')),
  said_state text constraint device_state_said_state_known
    check (said_state in ('online', 'offline', 'error')),
  said_at timestamptz,
  status_event_id uuid,
  firmware_version text,
  ip text,
  signal_strength double precision,
  health jsonb,
  uptime_s double precision,
  buffer_depth bigint,
  battery_v double precision,
  constraint device_state_pkey primary key (tenant_id, device_id)
) with (fillfactor = 70);
grant select, insert, update on device_state to farmiq_edge;

-- Commands to devices. `sent`: the broker has it. `delivered`, `applied`, `failed`: the device said
-- so. `expired`: its time was over before the device said anything final.
create table device_commands (
  command_id uuid constraint device_commands_pkey primary key,
  tenant_id text not null,
  device_id text not null,
  name text not null,
  args jsonb not null,
  state text not null default 'queued' constraint device_commands_state_known
    check (state in ('queued', 'sent', 'delivered', 'applied', 'failed', 'expired')),
  message text,
  created_by text not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  sent_at timestamptz,
  sent_count int not null default 0,
  delivered_at timestamptz,
  ended_at timestamptz,
  constraint device_commands_device_fkey foreign key (tenant_id, device_id)
    references devices (tenant_id, device_id)
);
create index device_commands_open_idx on device_commands (expires_at)
  where state in ('queued', 'sent', 'delivered');
create index device_commands_device_idx on device_commands
  (tenant_id, device_id, created_at desc);
grant select, insert, update, delete on device_commands to farmiq_edge;
