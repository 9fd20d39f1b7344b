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
  -- What vision estimated of those weighings, against the scale.
  estimated_count bigint not null default 0,
  vision_residual_pct double precision,
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
