-- People who sign in to the console. Passwords are kept as argon2 hashes only.
create table users (
  user_id uuid constraint users_pkey primary key,
  company_id uuid not null constraint users_company_fkey references companies (company_id),
  email text not null constraint users_email_key unique
    constraint users_email_lower check (email = lower(email)),
  password_hash text not null,
  role text not null constraint users_role_known
    check (role in ('viewer', 'operator', 'technician', 'admin')),
  created_at timestamptz not null default now()
);

alter table users enable row level security;
alter table users force row level security;
create policy users_people on users for select to authenticated
  using (company_id = get_active_company_id());
-- Whoever owns the database adds users; FORCE holds for owners too.
create policy users_owner on users for all to current_user using (true) with check (true);
create policy users_service on users for select to farmiq_service using (true);
grant select (user_id, company_id, email, role, created_at) on users to authenticated;
grant select on users to farmiq_service;
