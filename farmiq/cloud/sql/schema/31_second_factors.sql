-- The second factor of a person: a secret that an app on their telephone has too (RFC 6238). It is
-- sealed with the key of FARMIQ_SECRETS_KEY_FILE, for this person alone; of recovery codes only the
-- hashes of those that are left are here. People read neither.
-- confirmed_at is null until a first code has shown that the app has it. last_step is the newest
-- step of 30 seconds whose code was accepted: no code is accepted twice.
create table second_factors (
  user_id uuid constraint second_factors_pkey primary key
    constraint second_factors_user_fkey references users (user_id) on delete cascade,
  company_id uuid not null
    constraint second_factors_company_fkey references companies (company_id),
  secret bytea not null,
  last_step bigint not null default 0,
  recovery_hashes bytea[] not null default '{}',
  created_at timestamptz not null default now(),
  confirmed_at timestamptz
);
create index second_factors_company_id_idx on second_factors (company_id);

alter table second_factors enable row level security;
alter table second_factors force row level security;
create policy "Users see in their company" on second_factors for select to authenticated
  using (company_id = get_active_company_id());
-- Whoever owns the database resets a second factor; FORCE holds for owners too.
create policy second_factors_owner on second_factors for all to current_user
  using (true) with check (true);
create policy second_factors_service on second_factors for all to farmiq_service
  using (true) with check (true);
-- An admin resets the one of a person of their company (fn_reset_person_second_factor).
create policy second_factors_jobs on second_factors for select to farmiq_jobs using (true);
create policy second_factors_jobs_end on second_factors for delete to farmiq_jobs using (true);
grant select (user_id, company_id, created_at, confirmed_at) on second_factors to authenticated;
grant select, insert, update, delete on second_factors to farmiq_service;
grant select (user_id, company_id, confirmed_at), delete on second_factors to farmiq_jobs;
