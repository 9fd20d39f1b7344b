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
grant select, insert, update, delete on device_state to farmiq_edge;
