-- What the readings of one bucket of time come to, as it was announced on the bus.
create table telemetry_aggregates (
  tenant_id text not null,
  event_id uuid not null,
  event_type text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text,
  session_id uuid,
  occurred_at timestamptz not null,
  trace_id text not null,
  payload jsonb not null,
  stored_at timestamptz not null default clock_timestamp(),
  metric_type text generated always as (payload ->> 'metric_type') stored,
  aggregation_window text generated always as (payload ->> 'aggregation_window') stored,
  avg_value double precision generated always as (
    (payload ->> 'avg_value')::double precision) stored,
  min_value double precision generated always as (
    (payload ->> 'min_value')::double precision) stored,
  max_value double precision generated always as (
    (payload ->> 'max_value')::double precision) stored,
  unit text generated always as (payload ->> 'unit') stored,
  clock_suspect boolean not null default false,
  constraint telemetry_aggregates_pkey primary key (tenant_id, event_id)
);
create index telemetry_aggregates_occurred_at_idx on telemetry_aggregates (tenant_id, occurred_at desc);
create index telemetry_aggregates_series_idx
  on telemetry_aggregates (tenant_id, device_id, metric_type, occurred_at desc);

alter table telemetry_aggregates enable row level security;
alter table telemetry_aggregates force row level security;
create policy "Users see in their company" on telemetry_aggregates for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy telemetry_aggregates_service on telemetry_aggregates for all to farmiq_service
  using (true) with check (true);
grant select on telemetry_aggregates to authenticated;
grant select, insert on telemetry_aggregates to farmiq_service;
