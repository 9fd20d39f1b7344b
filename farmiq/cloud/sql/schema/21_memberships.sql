-- What a person may do in a company. It gives a role, never a view: which company a person sees
-- is users.company_id, or a super admin's choice.
create table memberships (
  user_id uuid not null constraint memberships_user_fkey
    references users (user_id) on delete cascade,
  company_id uuid not null constraint memberships_company_fkey references companies (company_id),
  role text not null constraint memberships_role_known
    check (role in ('viewer', 'operator', 'technician', 'admin')),
  created_at timestamptz not null default now(),
  constraint memberships_pkey primary key (user_id, company_id)
);
create index memberships_company_id_idx on memberships (company_id);

alter table memberships enable row level security;
alter table memberships force row level security;
create policy "Users see in their company" on memberships for select to authenticated
  using (company_id = get_active_company_id());
create policy memberships_owner on memberships for all to current_user
  using (true) with check (true);
create policy memberships_service on memberships for select to farmiq_service using (true);
create policy memberships_jobs on memberships for select to farmiq_jobs using (true);
create policy memberships_jobs_add on memberships for insert to farmiq_jobs with check (true);
create policy memberships_jobs_change on memberships for update to farmiq_jobs
  using (true) with check (true);
grant select on memberships to authenticated, farmiq_service;
grant select (user_id, company_id, role) on memberships to farmiq_jobs;
grant insert (user_id, company_id, role), update (role) on memberships to farmiq_jobs;
