-- How far the rules of edge-alert-rules have looked at a series: what was read of it, its newest
-- value, and the state of each rule for which something is pending or open. farm_id and barn_id are
-- where the device stood.
create table alert_series (
  tenant_id text not null,
  device_id text not null,
  metric_type text not null,
  farm_id text not null,
  barn_id text not null,
  read_to timestamptz not null,
  ingested_to timestamptz not null,
  last_at timestamptz,
  last_value double precision,
  states jsonb not null default '{}',
  constraint alert_series_pkey primary key (tenant_id, device_id, metric_type)
) with (fillfactor = 70);
grant select, insert, update, delete on alert_series to farmiq_edge;
