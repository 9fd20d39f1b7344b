-- What happened to a batch on one local date of its farm: the facts that its figures are made of.
-- A day without any fact has no row. Empty columns: nothing of that kind was recorded that day.
create table batch_days (
  tenant_id text not null,
  batch_id text not null,
  kpi_date date not null,
  -- Statistics of the weighings that are no outliers (fn_batch_weighings).
  weighed_count bigint not null default 0,
  outlier_count bigint not null default 0,
  weight_mean_kg double precision,
  weight_median_kg double precision,
  weight_p10_kg double precision,
  weight_p90_kg double precision,
  weight_cv_pct double precision,
  weight_uniformity_pct double precision,
  feed_kg double precision,
  intake_count bigint not null default 0,
  water_l double precision,
  water_count bigint not null default 0,
  dead double precision not null default 0,
  dead_count bigint not null default 0,
  culled double precision not null default 0,
  cull_count bigint not null default 0,
  -- The last count of the animals on that day: so many there were at its end.
  counted_head double precision,
  head_record_count bigint not null default 0,
  hours smallint not null,
  covered_hours smallint not null default 0,
  reading_count bigint not null default 0,
  thi_hours smallint,
  climate_reading_count bigint not null default 0,
  changed_at timestamptz not null default now(),
  constraint batch_days_pkey primary key (tenant_id, batch_id, kpi_date)
);

alter table batch_days enable row level security;
alter table batch_days force row level security;
create policy "Users see in their company" on batch_days for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy batch_days_service on batch_days for all to farmiq_service
  using (true) with check (true);
grant select on batch_days to authenticated;
grant select, insert, update, delete on batch_days to farmiq_service;
-- Figures of a batch by local date. A figure that was withdrawn has no value; its revision goes on,
-- so that each change has an event_id of its own (kpi.daily.updated).
create table kpi_daily (
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  batch_id text not null,
  kpi_date date not null,
  kpi_type text not null,
  value double precision,
  unit text not null,
  source_event_count bigint not null,
  expected_value double precision,
  difference double precision,
  revision bigint not null default 1,
  computed_at timestamptz not null default now(),
  constraint kpi_daily_pkey primary key (tenant_id, batch_id, kpi_date, kpi_type)
);
create index kpi_daily_date_idx on kpi_daily (tenant_id, kpi_date desc, batch_id, kpi_type);

alter table kpi_daily enable row level security;
alter table kpi_daily force row level security;
create policy "Users see in their company" on kpi_daily for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy kpi_daily_service on kpi_daily for all to farmiq_service
  using (true) with check (true);
grant select on kpi_daily to authenticated;
grant select, insert, update on kpi_daily to farmiq_service;
-- Days of batches that have to be computed again. Rows are only added and deleted, so nobody waits
-- for anybody and no mark is lost. Without last_date all days from first_date on; with is_figures
-- the facts are as they were and only figures change (a breed standard did).
create table analytics_dirty_days (
  tenant_id text not null,
  id bigint generated always as identity constraint analytics_dirty_days_pkey primary key,
  batch_id text not null,
  first_date date not null,
  last_date date,
  is_figures boolean not null default false,
  marked_at timestamptz not null default now(),
  due_at timestamptz not null default now()
);
create index analytics_dirty_days_due_idx on analytics_dirty_days (due_at);
create index analytics_dirty_days_batch_idx on analytics_dirty_days (tenant_id, batch_id);

-- Master data mark the days that they touch.
create trigger batches_mark_days after insert or update or delete on batches
  for each row execute function fn_batches_mark_days();
create trigger farms_mark_days after update of timezone on farms
  for each row execute function fn_farms_mark_days();
create trigger breed_standards_mark_days after insert or update or delete on breed_standards
  for each row execute function fn_breed_standards_mark_days();
create trigger metrics_mark_days after insert or update or delete on metrics
  for each row execute function fn_metrics_mark_days();

alter table analytics_dirty_days enable row level security;
alter table analytics_dirty_days force row level security;
create policy "Users see in their company" on analytics_dirty_days for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy analytics_dirty_days_service on analytics_dirty_days for all to farmiq_service
  using (true) with check (true);
grant select on analytics_dirty_days to authenticated;
grant select, insert, delete, update on analytics_dirty_days to farmiq_service;
-- Events that the bus brought to analytics before their own service had stored them: they mark their
-- days when they are stored. Of an hour of telemetry the bucket is looked for.
create table analytics_pending (
  tenant_id text not null,
  event_id uuid not null,
  family text not null constraint analytics_pending_family_known
    check (family in ('weighvision', 'feed', 'barn', 'telemetry')),
  farm_id text,
  barn_id text,
  device_id text,
  metric_type text,
  bucket_start_at timestamptz,
  reading_count bigint,
  attempts integer not null default 0,
  next_look_at timestamptz not null default now(),
  received_at timestamptz not null default now(),
  constraint analytics_pending_pkey primary key (tenant_id, event_id)
);
create index analytics_pending_next_look_at_idx on analytics_pending (next_look_at);
create index analytics_pending_received_at_idx on analytics_pending (received_at);

alter table analytics_pending enable row level security;
alter table analytics_pending force row level security;
create policy "Users see in their company" on analytics_pending for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy analytics_pending_service on analytics_pending for all to farmiq_service
  using (true) with check (true);
grant select on analytics_pending to authenticated;
grant select, insert, update, delete on analytics_pending to farmiq_service;
