-- Who ended a series of dishes; a super admin who looks at another company.
alter table dish_series add column ended_by uuid;
grant update (ended_by) on dish_series to farmiq_jobs;
-- additive: every action that was allowed still is.
do $$
begin
  alter table user_actions drop constraint user_actions_action_known;
  alter table user_actions add constraint user_actions_action_known
    check (action in ('add', 'change', 'password', 'remove', 'language', 'second_factor_on',
      'second_factor_off', 'reset_second_factor', 'recovery_codes', 'recovery_code_used',
      'end_session', 'end_other_sessions', 'second_factor_rule', 'look_at_company'));
end $$;
