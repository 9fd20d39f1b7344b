-- Readings by minute and hour (UTC) and by the farm's local day: the one place for all windows. The
-- cloud computes minutes from telemetry_readings, hours from minutes, days from hours; of a metric that
-- an edge sends as aggregates the edge's bucket is stored (sent). Of the two, the one with more
-- readings counts (D-361). Sums are exact decimals, as at the edge (D-56).
create table telemetry_agg (
  id uuid not null,
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
  -- Of computed minutes: the time of the newest reading that was counted (see the edge's table).
  last_at timestamptz,
  sent boolean not null default false,
  -- Grows with every change that the cloud makes, and whether the change still has to be published
  -- (telemetry.aggregated, D-362). It begins with the time: a day that was deleted and comes back
  -- must not have an old revision.
  revision bigint not null default (extract(epoch from clock_timestamp()) * 1000000)::bigint,
  pending boolean not null default false,
  stored_at timestamptz not null default clock_timestamp(),
  constraint telemetry_agg_pkey
    primary key (tenant_id, device_id, metric_type, "window", bucket_start_at)
) with (fillfactor = 85);
-- The hours of a barn, for its days' figures.
create index telemetry_agg_barn_idx
  on telemetry_agg (tenant_id, farm_id, barn_id, bucket_start_at) where "window" = '1h';
-- By the event that an edge sent it with, which is its id.
create index telemetry_agg_sent_idx on telemetry_agg (tenant_id, id) where sent;
create index telemetry_agg_pending_idx on telemetry_agg (bucket_end_at) where pending;

alter table telemetry_agg enable row level security;
alter table telemetry_agg force row level security;
create policy "Users see in their company" on telemetry_agg for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy telemetry_agg_service on telemetry_agg for all to farmiq_service
  using (true) with check (true);
grant select on telemetry_agg to authenticated;
grant select, insert, update, delete on telemetry_agg to farmiq_service;
