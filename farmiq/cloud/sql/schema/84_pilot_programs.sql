-- Programs of a company: what its sites are compared by, control against experimental.
-- active_since: when it was last made active again; days before that were not missed.
create table pilot_programs (
  program_id uuid constraint pilot_programs_pkey primary key,
  company_id uuid not null constraint pilot_programs_company_fkey references companies (company_id),
  program_name text not null constraint pilot_programs_name_said check (program_name <> ''),
  program_type text not null constraint pilot_programs_type_known
    check (program_type in ('control', 'experimental')),
  is_active boolean not null default true,
  created_at timestamptz not null default now(),
  active_since timestamptz,
  -- What other tables refer to, so that a row never points into another company.
  constraint pilot_programs_lineage_key unique (program_id, company_id)
);

-- An index by an expression is no key, so a new name does not lock out who refers to the row.
create unique index pilot_programs_name_idx on pilot_programs (company_id, lower(program_name));
create trigger pilot_programs_active_since before update of is_active on pilot_programs
  for each row execute function fn_active_since();

alter table pilot_programs enable row level security;
alter table pilot_programs force row level security;
create policy "Users see in their company" on pilot_programs for select to authenticated
  using (company_id = get_active_company_id());
create policy pilot_programs_owner on pilot_programs for all to current_user
  using (true) with check (true);
create policy pilot_programs_service on pilot_programs for all to farmiq_service
  using (true) with check (true);
create policy pilot_programs_jobs on pilot_programs for all to farmiq_jobs
  using (true) with check (true);
grant select on pilot_programs to authenticated;
grant select, insert on pilot_programs to farmiq_service;
grant update (program_name, program_type, is_active) on pilot_programs to farmiq_service;
grant select on pilot_programs to farmiq_jobs;
