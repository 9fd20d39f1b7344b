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
