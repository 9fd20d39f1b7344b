-- Who signed in and out, and wrong tries; and what people do to cameras and their images. A camera's
-- resend is asked for in a function of farmiq_jobs.
create policy master_data_actions_jobs on master_data_actions for insert to farmiq_jobs
  with check (true);
grant insert (action_id, at, actor, action, tenant_id, kind, key, detail)
  on master_data_actions to farmiq_jobs;
-- additive: every action that was allowed still is.
do $$
begin
  alter table user_actions drop constraint user_actions_action_known;
  alter table user_actions add constraint user_actions_action_known
    check (action in ('add', 'change', 'password', 'remove', 'language', 'second_factor_on',
      'second_factor_off', 'reset_second_factor', 'recovery_codes', 'recovery_code_used',
      'end_session', 'end_other_sessions', 'second_factor_rule', 'look_at_company', 'sign_in',
      'sign_in_failed', 'sign_out'));
  alter table master_data_actions drop constraint master_data_actions_action_known;
  alter table master_data_actions add constraint master_data_actions_action_known
    check (action in ('add', 'change', 'remove', 'import', 'resend', 'resolve'));
end $$;
