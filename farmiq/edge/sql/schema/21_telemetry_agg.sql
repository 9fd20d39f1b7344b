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
  -- Of minutes: the time of the newest reading that was counted. Later ones are added to what is
  -- here; an earlier one has the minute made from all its readings. Null: made before this was kept.
  last_at timestamptz,
  constraint telemetry_agg_bucket_key
    unique (tenant_id, device_id, metric_type, "window", bucket_start_at)
);
create index telemetry_agg_device_idx
  on telemetry_agg (tenant_id, device_id, "window", bucket_start_at desc);
create index telemetry_agg_owed_idx on telemetry_agg (bucket_end_at) where owed;
grant select, insert, update, delete on telemetry_agg to farmiq_edge;
