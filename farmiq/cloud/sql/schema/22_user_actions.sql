-- Who added, changed or removed which person, who signed in and out or tried to, and what people did
-- to their own account. It is only ever added to; look_at_company is of a super admin, at the company
-- that they chose. When a person is gone, their user_id in other tables
-- (device_schedule_changes.requested_by) is still told apart by it.
create table user_actions (
  action_id uuid constraint user_actions_pkey primary key,
  at timestamptz not null,
  actor text not null,
  action text not null constraint user_actions_action_known
    check (action in ('add', 'change', 'password', 'remove', 'language', 'second_factor_on',
      'second_factor_off', 'reset_second_factor', 'recovery_codes', 'recovery_code_used',
      'end_session', 'end_other_sessions', 'second_factor_rule', 'look_at_company', 'sign_in',
      'sign_in_failed', 'sign_out')),
  company_id uuid not null
    constraint user_actions_company_fkey references companies (company_id),
  user_id uuid not null,
  email text not null,
  detail text not null default ''
);
create index user_actions_company_idx on user_actions (company_id, at desc);
create index user_actions_user_id_idx on user_actions (user_id);

alter table user_actions enable row level security;
alter table user_actions force row level security;
create policy "Users see in their company" on user_actions for select to authenticated
  using (company_id = get_active_company_id());
-- Whoever owns the database adds and removes people; FORCE holds for owners too.
create policy user_actions_owner on user_actions for all to current_user
  using (true) with check (true);
create policy user_actions_service on user_actions for select to farmiq_service using (true);
create policy user_actions_service_add on user_actions for insert to farmiq_service
  with check (true);
create policy user_actions_jobs on user_actions for insert to farmiq_jobs with check (true);
grant select on user_actions to authenticated, farmiq_service;
grant insert on user_actions to farmiq_service;
grant insert (action_id, at, actor, action, company_id, user_id, email, detail) on user_actions
  to farmiq_jobs;
