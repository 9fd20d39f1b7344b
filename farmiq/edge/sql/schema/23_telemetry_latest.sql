-- Every series there is, with a newest reading. The gateway adds a series that is new; afterwards
-- edge-telemetry-timeseries follows. Whoever wants the very newest looks in telemetry_raw from
-- newest_at on: a suspect clock never hides a good one, and nothing is newer than its arrival.
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
  ingested_at timestamptz not null,
  clock_suspect boolean not null,
  newest_at timestamptz not null generated always as (
    case when clock_suspect then ingested_at else least(occurred_at, ingested_at) end) stored,
  constraint telemetry_latest_pkey primary key (tenant_id, device_id, metric_type)
);
grant select, insert, update, delete on telemetry_latest to farmiq_edge;
