-- Every series there is: the newest reading of each metric of each device, and how many readings there
-- were. reading_count grows only with rows new in telemetry_readings, so it proves "nothing twice".
-- Of a metric that an edge sends as aggregates it is the newest bucket, by its mean and its end, and
-- aggregation_window says of which length.
create table telemetry_latest (
  tenant_id text not null,
  device_id text not null,
  metric_type text not null,
  farm_id text not null,
  barn_id text not null,
  event_id uuid not null,
  metric_value double precision not null,
  unit text not null,
  occurred_at timestamptz not null,
  stored_at timestamptz not null default clock_timestamp(),
  reading_count bigint not null,
  clock_suspect boolean not null default false,
  aggregation_window text constraint telemetry_latest_window_known
    check (aggregation_window in ('1m', '1h', '1d')),
  constraint telemetry_latest_pkey primary key (tenant_id, device_id, metric_type)
);
-- Series of a metric, of which alert rules look for the silent ones. Not by time: that changes with every
-- reading, and so would the index.
create index telemetry_latest_metric_idx on telemetry_latest (tenant_id, metric_type);

alter table telemetry_latest enable row level security;
alter table telemetry_latest force row level security;
create policy "Users see in their company" on telemetry_latest for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy telemetry_latest_service on telemetry_latest for all to farmiq_service
  using (true) with check (true);
grant select on telemetry_latest to authenticated;
grant select, insert, update on telemetry_latest to farmiq_service;
