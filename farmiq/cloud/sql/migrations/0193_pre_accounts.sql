alter table companies add column second_factor_from text
  constraint companies_second_factor_from_known
    check (second_factor_from in ('viewer', 'operator', 'technician', 'admin', 'super_admin'));
create policy companies_service_update on companies for update to farmiq_service
  using (true) with check (true);
grant update (second_factor_from) on companies to farmiq_service;

alter table users add column language text
  constraint users_language_code check (language ~ '^[a-z]{2,3}(-[A-Z]{2})?$');
create policy users_service_change on users for update to farmiq_service
  using (true) with check (true);
grant select (language) on users to authenticated;
grant update (password_hash, must_change_password, language) on users to farmiq_service;

-- additive: every action that was allowed still is.
do $$
begin
  alter table user_actions drop constraint user_actions_action_known;
  alter table user_actions add constraint user_actions_action_known
    check (action in ('add', 'change', 'password', 'remove', 'language', 'second_factor_on',
      'second_factor_off', 'reset_second_factor', 'recovery_codes', 'recovery_code_used',
      'end_session', 'end_other_sessions', 'second_factor_rule'));
end $$;
create policy user_actions_service_add on user_actions for insert to farmiq_service
  with check (true);
grant insert on user_actions to farmiq_service;

alter table sign_ins
  add column session_id uuid not null default gen_random_uuid(),
  add column last_seen_at timestamptz not null default now(),
  add column network text not null default '',
  add column user_agent text not null default '',
  add column method text not null default 'password'
    constraint sign_ins_method_known
      check (method in ('password', 'code', 'recovery_code', 'command'));

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
