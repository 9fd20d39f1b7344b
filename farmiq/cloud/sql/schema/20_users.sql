-- People who sign in to the console. Passwords are kept as argon2 hashes only.
-- A regular user is locked to company_id; a super admin chooses (004). Admins of a company add, change
-- and remove regular users by functions (fn_add_person and others); only the owner makes a super admin.
-- must_change_password: an admin gave the password.
create table users (
  user_id uuid constraint users_pkey primary key,
  company_id uuid not null constraint users_company_fkey references companies (company_id),
  email text not null constraint users_email_key unique
    constraint users_email_lower check (email = lower(email)),
  password_hash text not null,
  is_super_admin boolean not null default false,
  created_at timestamptz not null default now(),
  must_change_password boolean not null default false,
  -- Of pages and reports, such as de; null: what the browser asks for.
  language text constraint users_language_code check (language ~ '^[a-z]{2,3}(-[A-Z]{2})?$')
);
create index users_company_id_idx on users (company_id);

alter table users enable row level security;
alter table users force row level security;
create policy "Users see in their company" on users for select to authenticated
  using (company_id = get_active_company_id());
-- Whoever owns the database adds users; FORCE holds for owners too.
create policy users_owner on users for all to current_user using (true) with check (true);
create policy users_service on users for select to farmiq_service using (true);
create policy users_service_change on users for update to farmiq_service
  using (true) with check (true);
create policy users_jobs on users for select to farmiq_jobs using (true);
create policy users_jobs_add on users for insert to farmiq_jobs with check (not is_super_admin);
create policy users_jobs_change on users for update to farmiq_jobs
  using (not is_super_admin) with check (not is_super_admin);
create policy users_jobs_remove on users for delete to farmiq_jobs using (not is_super_admin);
grant select (user_id, company_id, email, is_super_admin, created_at, must_change_password, language)
  on users to authenticated;
grant select on users to farmiq_service;
-- What people change of their own account.
grant update (password_hash, must_change_password, language) on users to farmiq_service;
grant select (user_id, company_id, email, is_super_admin) on users to farmiq_jobs;
grant insert (user_id, company_id, email, password_hash, must_change_password) on users to farmiq_jobs;
grant update (password_hash, must_change_password) on users to farmiq_jobs;
grant delete on users to farmiq_jobs;
