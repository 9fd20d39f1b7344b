-- Aggregates by minute, hour and day, the marks that make them again, the series there are, and what
-- retention needs to know.

create index telemetry_raw_default_ingested_idx on telemetry_raw_default (ingested_at);
grant delete on telemetry_raw to farmiq_edge;
grant select, delete on telemetry_raw_default to farmiq_edge;

-- Readings by minute and hour (UTC) and by the farm's local day. Every bucket can be made again:
-- minutes from telemetry_raw, hours from minutes, days from hours. Sums are exact decimals, so a
-- bucket is the same in whatever order and portions its readings came (D-56).
create table telemetry_agg (
  id uuid constraint telemetry_agg_pkey primary key,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  "window" text not null constraint telemetry_agg_window_known
    check ("window" in ('1m', '1h', '1d')),
  bucket_start_at timestamptz not null,
  bucket_end_at timestamptz not null,
  metric_type text not null,
  unit text not null,
  avg_value double precision not null,
  min_value double precision not null,
  max_value double precision not null,
  sum_value numeric not null,
  count bigint not null constraint telemetry_agg_count_positive check (count > 0),
  -- For metrics that are synced as aggregates: the cloud is owed this state of the bucket, and how
  -- many readings were in it when it was last told.
  owed boolean not null default false,
  told_count bigint not null default 0,
  constraint telemetry_agg_bucket_key
    unique (tenant_id, device_id, metric_type, "window", bucket_start_at)
);
create index telemetry_agg_device_idx
  on telemetry_agg (tenant_id, device_id, "window", bucket_start_at desc);
create index telemetry_agg_owed_idx on telemetry_agg (bucket_end_at) where owed;
grant select, insert, update, delete on telemetry_agg to farmiq_edge;

-- Which buckets have to be made again: one row per transaction of the gateway, written in it, that
-- names for each series the minutes (since 1970, UTC; within one hour) its readings fell into.
-- Rows are only added and deleted, so nobody waits for anybody and no mark is lost (D-57).
create table telemetry_dirty (
  id bigint generated always as identity constraint telemetry_dirty_pkey primary key,
  marked_at timestamptz not null default now(),
  first_at timestamptz not null,
  tenants text[] not null,
  devices text[] not null,
  metrics text[] not null,
  first_minutes bigint[] not null,
  last_minutes bigint[] not null,
  -- Metrics whose readings were not told to the cloud: their buckets are.
  owed_metrics text[] not null
);
grant select, insert, delete on telemetry_dirty to farmiq_edge;

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

-- What edge-telemetry-timeseries has to remember. Before raw_from readings may have been dropped, so
-- buckets from before it are never made again; fallback_timezone is the zone that the days of farms
-- without one were made in.
create table telemetry_state (
  only_row boolean not null default true
    constraint telemetry_state_pkey primary key
    constraint telemetry_state_only_row check (only_row),
  raw_from timestamptz not null default '-infinity',
  fallback_timezone text not null default 'UTC'
);
grant select, insert, update on telemetry_state to farmiq_edge;

-- Farms whose days are not those of FARMIQ_EDGE_TIMEZONE.
create table farms (
  tenant_id text not null,
  farm_id text not null,
  timezone text not null,
  constraint farms_pkey primary key (tenant_id, farm_id)
);
grant select, insert, update, delete on farms to farmiq_edge;

-- How a metric travels to the cloud: every reading (raw), or buckets of one window (agg), for links
-- where every reading is too much (C-40). A metric without a row is raw.
create table metric_settings (
  metric_type text constraint metric_settings_pkey primary key,
  sync text not null default 'raw' constraint metric_settings_sync_known
    check (sync in ('raw', 'agg')),
  agg_window text not null default '1m' constraint metric_settings_agg_window_known
    check (agg_window in ('1m', '1h', '1d'))
);
grant select, insert, update on metric_settings to farmiq_edge;

-- Series whose days have to be made again, all of them: their farm got another time zone.
create table telemetry_rezoned (
  tenant_id text not null,
  device_id text not null,
  metric_type text not null,
  constraint telemetry_rezoned_pkey primary key (tenant_id, device_id, metric_type)
);
grant select, insert, delete on telemetry_rezoned to farmiq_edge;

-- What was recorded before has no marks: a mark per tenant and day, and the series there are.
insert into telemetry_dirty (first_at, tenants, devices, metrics, first_minutes, last_minutes,
  owed_metrics)
select min(to_timestamp(first * 60)), array_agg(tenant_id), array_agg(device_id),
  array_agg(metric_type), array_agg(first), array_agg(last), '{}'
from (
  select tenant_id, device_id, metric_type,
    min(floor(extract(epoch from occurred_at) / 60))::bigint as first,
    max(floor(extract(epoch from occurred_at) / 60))::bigint as last
  from telemetry_raw
  group by tenant_id, device_id, metric_type, date_bin('1 hour', occurred_at, 'epoch')) hours
group by tenant_id, first / 1440;

insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, barn_id, event_id,
  metric_value, unit, occurred_at, ingested_at, clock_suspect)
select distinct on (tenant_id, device_id, metric_type) tenant_id, device_id, metric_type, farm_id,
  barn_id, id, metric_value, unit, occurred_at, ingested_at, clock_suspect
from telemetry_raw
order by tenant_id, device_id, metric_type, clock_suspect,
  case when clock_suspect then ingested_at else least(occurred_at, ingested_at) end desc, id desc;
