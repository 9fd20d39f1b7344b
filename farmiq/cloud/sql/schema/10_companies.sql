-- A company of the console is a tenant of the bus: tenant_id links the two (C-52).
create table companies (
  company_id uuid constraint companies_pkey primary key,
  tenant_id text not null constraint companies_tenant_id_key unique
    constraint companies_tenant_id_said check (tenant_id <> ''),
  name text not null,
  timezone text not null default 'UTC',
  created_at timestamptz not null default now(),
  -- People of this role and above need a second factor to sign in; null: nobody does.
  second_factor_from text constraint companies_second_factor_from_known
    check (second_factor_from in ('viewer', 'operator', 'technician', 'admin', 'super_admin'))
);
create trigger companies_tenant_id before insert on companies
  for each row execute function fn_companies_tenant_id();

alter table companies enable row level security;
alter table companies force row level security;
create policy "Users see in their company" on companies for select to authenticated
  using (company_id = get_active_company_id());
-- Whoever owns the database adds companies; FORCE holds for owners too.
create policy companies_owner on companies for all to current_user using (true) with check (true);
create policy companies_service on companies for select to farmiq_service using (true);
create policy companies_service_update on companies for update to farmiq_service
  using (true) with check (true);
create policy companies_jobs on companies for select to farmiq_jobs using (true);
create policy companies_jobs_add on companies for insert to farmiq_jobs with check (true);
grant select on companies to authenticated, farmiq_service;
grant update (second_factor_from) on companies to farmiq_service;
grant select (company_id, tenant_id, name, timezone) on companies to farmiq_jobs;
grant insert (company_id, tenant_id, name, timezone) on companies to farmiq_jobs;
