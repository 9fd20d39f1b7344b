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
