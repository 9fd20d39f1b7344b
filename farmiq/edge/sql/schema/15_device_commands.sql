-- Commands to devices. `sent`: the broker has it. `delivered`, `applied`, `failed`: the device said
-- so. `expired`: its time was over before the device said anything final. `tried_at` is when somebody
-- last began to send it, and may have died since.
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
  tried_at timestamptz,
  constraint device_commands_device_fkey foreign key (tenant_id, device_id)
    references devices (tenant_id, device_id)
);
create index device_commands_open_idx on device_commands (expires_at)
  where state in ('queued', 'sent', 'delivered');
create index device_commands_device_idx on device_commands
  (tenant_id, device_id, created_at desc);
grant select, insert, update, delete on device_commands to farmiq_edge;
