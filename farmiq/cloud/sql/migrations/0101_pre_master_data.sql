-- Farms: the zone of their days. Names and zones belong to the cloud; edges fetch them (C-114).
create table farms (
  tenant_id text not null,
  farm_id text not null,
  name text not null constraint farms_name_given check (name <> ''),
  timezone text not null,
  changed_at timestamptz not null default now(),
  constraint farms_pkey primary key (tenant_id, farm_id),
  constraint farms_tenant_fkey foreign key (tenant_id) references companies (tenant_id)
);
create trigger farms_timezone before insert or update of timezone on farms
  for each row execute function fn_sites_timezone();

alter table farms enable row level security;
alter table farms force row level security;
create policy "Users see in their company" on farms for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy farms_service on farms for all to farmiq_service
  using (true) with check (true);
grant select on farms to authenticated;
grant select, insert, update, delete on farms to farmiq_service;
-- Barns of a farm: how many animals they hold, and on which area.
create table barns (
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  name text not null constraint barns_name_given check (name <> ''),
  capacity integer constraint barns_capacity_positive check (capacity > 0),
  area_m2 double precision constraint barns_area_positive check (area_m2 > 0),
  changed_at timestamptz not null default now(),
  constraint barns_pkey primary key (tenant_id, farm_id, barn_id),
  constraint barns_farm_fkey foreign key (tenant_id, farm_id)
    references farms (tenant_id, farm_id)
);

alter table barns enable row level security;
alter table barns force row level security;
create policy "Users see in their company" on barns for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy barns_service on barns for all to farmiq_service
  using (true) with check (true);
grant select on barns to authenticated;
grant select, insert, update, delete on barns to farmiq_service;
-- Batches: animals that were placed in a barn together. Of one barn no two overlap.
-- closed_on is the last day on which they were there; a batch without it is still there.
create table batches (
  tenant_id text not null,
  batch_id text not null,
  farm_id text not null,
  barn_id text not null,
  species text not null,
  breed text,
  sex text not null default 'mixed'
    constraint batches_sex_known check (sex in ('female', 'male', 'mixed')),
  placed_count integer not null constraint batches_placed_positive check (placed_count > 0),
  placed_on date not null,
  age_at_placing_days integer not null default 0
    constraint batches_age_known check (age_at_placing_days between 0 and 10000),
  target_weight_kg double precision constraint batches_target_positive check (target_weight_kg > 0),
  target_on date,
  closed_on date,
  changed_at timestamptz not null default now(),
  constraint batches_pkey primary key (tenant_id, batch_id),
  constraint batches_barn_fkey foreign key (tenant_id, farm_id, barn_id)
    references barns (tenant_id, farm_id, barn_id),
  constraint batches_closed_after_placing check (closed_on >= placed_on),
  constraint batches_target_after_placing check (target_on >= placed_on)
);
create index batches_barn_idx on batches (tenant_id, farm_id, barn_id, placed_on);
create trigger batches_one_at_a_time before insert or update on batches
  for each row execute function fn_batches_one_at_a_time();

alter table batches enable row level security;
alter table batches force row level security;
create policy "Users see in their company" on batches for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy batches_service on batches for all to farmiq_service
  using (true) with check (true);
grant select on batches to authenticated;
grant select, insert, update, delete on batches to farmiq_service;
-- Feed products that lots are of.
create table feed_products (
  tenant_id text not null,
  feed_product_id text not null,
  name text not null constraint feed_products_name_given check (name <> ''),
  species text,
  dry_matter_pct double precision
    constraint feed_products_dry_matter_share check (dry_matter_pct between 0 and 100),
  energy_mj_per_kg double precision
    constraint feed_products_energy_positive check (energy_mj_per_kg > 0),
  changed_at timestamptz not null default now(),
  constraint feed_products_pkey primary key (tenant_id, feed_product_id),
  constraint feed_products_tenant_fkey foreign key (tenant_id) references companies (tenant_id)
);

alter table feed_products enable row level security;
alter table feed_products force row level security;
create policy "Users see in their company" on feed_products for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy feed_products_service on feed_products for all to farmiq_service
  using (true) with check (true);
grant select on feed_products to authenticated;
grant select, insert, update, delete on feed_products to farmiq_service;
-- The metric catalogue: in which unit a metric is shown, and which values are plausible.
-- conversions: unit that a device may send -> [factor, offset], value * factor + offset = canonical.
create table metrics (
  tenant_id text not null,
  metric_type text not null,
  label text not null constraint metrics_label_given check (label <> ''),
  unit text not null,
  decimals smallint not null default 1
    constraint metrics_decimals_few check (decimals between 0 and 6),
  min_plausible double precision,
  max_plausible double precision,
  conversions jsonb not null default '{}'
    constraint metrics_conversions_object check (jsonb_typeof(conversions) = 'object'),
  changed_at timestamptz not null default now(),
  constraint metrics_pkey primary key (tenant_id, metric_type),
  constraint metrics_tenant_fkey foreign key (tenant_id) references companies (tenant_id),
  constraint metrics_plausible_order check (min_plausible <= max_plausible)
);

alter table metrics enable row level security;
alter table metrics force row level security;
create policy "Users see in their company" on metrics for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy metrics_service on metrics for all to farmiq_service
  using (true) with check (true);
grant select on metrics to authenticated;
grant select, insert, update, delete on metrics to farmiq_service;
-- What a breed is expected to be at an age, as its breeder or the farm says; imported.
create table breed_standards (
  tenant_id text not null,
  species text not null,
  breed text not null,
  sex text not null
    constraint breed_standards_sex_known check (sex in ('female', 'male', 'mixed')),
  age_days integer not null
    constraint breed_standards_age_known check (age_days between 0 and 10000),
  weight_kg double precision constraint breed_standards_weight_positive check (weight_kg > 0),
  daily_gain_g double precision,
  feed_conversion double precision
    constraint breed_standards_conversion_positive check (feed_conversion > 0),
  mortality_pct double precision
    constraint breed_standards_mortality_share check (mortality_pct between 0 and 100),
  source text not null,
  changed_at timestamptz not null default now(),
  constraint breed_standards_pkey primary key (tenant_id, species, breed, sex, age_days),
  constraint breed_standards_tenant_fkey foreign key (tenant_id) references companies (tenant_id)
);

alter table breed_standards enable row level security;
alter table breed_standards force row level security;
create policy "Users see in their company" on breed_standards for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy breed_standards_service on breed_standards for all to farmiq_service
  using (true) with check (true);
grant select on breed_standards to authenticated;
grant select, insert, update, delete on breed_standards to farmiq_service;
