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
