-- Every reading, once per event, partitioned by month. Months are made from three months back to two
-- months ahead, and for every older month that readings come for (D-360); until then, and for times that
-- cannot be right, there is the default partition. The key has to contain the partition column (C-19);
-- an event has one time, because ingestion refuses its id with another content (C-05).
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
  constraint telemetry_readings_pkey primary key (tenant_id, event_id, occurred_at)
) partition by range (occurred_at);
create index telemetry_readings_device_idx
  on telemetry_readings (tenant_id, device_id, metric_type, occurred_at desc);

alter table telemetry_readings enable row level security;
alter table telemetry_readings force row level security;
create policy "Users see in their company" on telemetry_readings for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy telemetry_readings_service on telemetry_readings for all to farmiq_service
  using (true) with check (true);
grant select on telemetry_readings to authenticated;
grant select, insert, delete on telemetry_readings to farmiq_service;

-- Partitions are reached through the table alone: nobody is granted anything on them. They have its
-- policies all the same (fn_make_telemetry_month gives them to months).
create table telemetry_readings_default partition of telemetry_readings default;
create index telemetry_readings_default_occurred_at_idx on telemetry_readings_default (occurred_at);
alter table telemetry_readings_default enable row level security;
alter table telemetry_readings_default force row level security;
create policy "Users see in their company" on telemetry_readings_default for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy telemetry_readings_default_service on telemetry_readings_default for all to farmiq_service
  using (true) with check (true);
-- Its owner moves rows into the month that they belong to; FORCE holds for owners too.
create policy telemetry_readings_default_owner on telemetry_readings_default for all to current_user
  using (true) with check (true);
-- Which months wait there, for the service that makes them.
grant select on telemetry_readings_default to farmiq_service;
