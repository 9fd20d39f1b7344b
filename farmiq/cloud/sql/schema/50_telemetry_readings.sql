-- Every reading, once per event.
create table telemetry_readings (
  tenant_id text not null,
  event_id uuid not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  metric_type text not null,
  metric_value double precision not null,
  unit text not null,
  occurred_at timestamptz not null,
  trace_id text not null,
  stored_at timestamptz not null default clock_timestamp(),
  clock_suspect boolean not null default false,
  constraint telemetry_readings_pkey primary key (tenant_id, event_id)
);
create index telemetry_readings_device_idx
  on telemetry_readings (tenant_id, device_id, metric_type, occurred_at desc);

alter table telemetry_readings enable row level security;
alter table telemetry_readings force row level security;
create policy "Users see in their company" on telemetry_readings for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy telemetry_readings_service on telemetry_readings for all to farmiq_service
  using (true) with check (true);
grant select on telemetry_readings to authenticated;
grant select, insert on telemetry_readings to farmiq_service;
