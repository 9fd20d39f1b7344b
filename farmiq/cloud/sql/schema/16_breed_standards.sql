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
