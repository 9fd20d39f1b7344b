-- People who sign in to the console. Passwords are kept as argon2 hashes only.
-- A regular user is locked to company_id; a super admin chooses (004). Only the owner makes those;
-- admins add people of their company through the console.
create table users (
  user_id uuid constraint users_pkey primary key,
  company_id uuid not null constraint users_company_fkey references companies (company_id),
  email text not null constraint users_email_key unique
    constraint users_email_lower check (email = lower(email)),
  password_hash text not null,
  is_super_admin boolean not null default false,
  created_at timestamptz not null default now(),
  -- Of pages and reports, such as de; null: what the browser asks for.
  language text constraint users_language_code check (language ~ '^[a-z]{2,3}(-[A-Z]{2})?$'),
  -- An admin gave the password: the person has to choose another one before anything else.
  must_change_password boolean not null default false
);
create index users_company_id_idx on users (company_id);

alter table users enable row level security;
alter table users force row level security;
create policy "Users see in their company" on users for select to authenticated
  using (company_id = get_active_company_id());
-- Whoever owns the database adds users; FORCE holds for owners too.
create policy users_owner on users for all to current_user using (true) with check (true);
create policy users_service on users for select to farmiq_service using (true);
create policy users_service_insert on users for insert to farmiq_service
  with check (not is_super_admin);
create policy users_service_update on users for update to farmiq_service
  using (true) with check (true);
create policy users_service_delete on users for delete to farmiq_service
  using (not is_super_admin);
create policy users_jobs on users for select to farmiq_jobs using (true);
grant select (user_id, company_id, email, is_super_admin, created_at, language, must_change_password)
  on users to authenticated;
grant select, insert, delete on users to farmiq_service;
-- Neither the company nor the right to see all of them.
grant update (password_hash, language, must_change_password) on users to farmiq_service;
grant select (user_id, company_id, is_super_admin) on users to farmiq_jobs;
