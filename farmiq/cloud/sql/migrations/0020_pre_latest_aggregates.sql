-- The newest bucket of each metric of each device that travels as aggregates; told again with more
-- readings, the one with more counts.
create table telemetry_latest_aggregates (
  tenant_id text not null,
  device_id text not null,
  metric_type text not null,
  farm_id text not null,
  barn_id text not null,
  event_id uuid not null,
  aggregation_window text not null,
  avg_value double precision not null,
  unit text not null,
  bucket_start_at timestamptz not null,
  bucket_end_at timestamptz not null,
  reading_count bigint not null,
  stored_at timestamptz not null default clock_timestamp(),
  constraint telemetry_latest_aggregates_pkey primary key (tenant_id, device_id, metric_type)
);

alter table telemetry_latest_aggregates enable row level security;
alter table telemetry_latest_aggregates force row level security;
create policy "Users see in their company" on telemetry_latest_aggregates for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy telemetry_latest_aggregates_service on telemetry_latest_aggregates
  for all to farmiq_service using (true) with check (true);
grant select on telemetry_latest_aggregates to authenticated;
grant select, insert, update on telemetry_latest_aggregates to farmiq_service;

insert into telemetry_latest_aggregates (tenant_id, device_id, metric_type, farm_id, barn_id,
  event_id, aggregation_window, avg_value, unit, bucket_start_at, bucket_end_at, reading_count)
select distinct on (tenant_id, device_id, metric_type) tenant_id, device_id, metric_type, farm_id,
  barn_id, event_id, aggregation_window, avg_value, unit, occurred_at,
  coalesce((payload ->> 'bucket_end_at')::timestamptz, occurred_at),
  coalesce((payload ->> 'count')::numeric::bigint, 0)
from telemetry_aggregates
where device_id is not null and event_type = 'telemetry.aggregated'
order by tenant_id, device_id, metric_type, occurred_at desc, stored_at desc;
