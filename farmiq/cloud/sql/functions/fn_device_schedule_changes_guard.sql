-- A request stays as it was made, and how it ended stays too: applied is never unapplied.
create or replace function fn_device_schedule_changes_guard() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' then
    raise exception 'schedule change % cannot be deleted: it is the audit trail', old.change_id
      using errcode = 'restrict_violation';
  end if;
  if num_nonnulls(old.applied_at, old.superseded_at, old.cancelled_at) > 0
    and to_jsonb(new) is distinct from to_jsonb(old) then
    raise exception 'schedule change % has ended and stays as it is', old.change_id
      using errcode = 'check_violation';
  end if;
  if (new.change_id, new.company_id, new.device_id, new.new_wake_schedule_cron, new.requested_at,
      new.requested_by, new.position, new.effective_date) is distinct from
     (old.change_id, old.company_id, old.device_id, old.new_wake_schedule_cron, old.requested_at,
      old.requested_by, old.position, old.effective_date) then
    raise exception 'schedule change % stays as it was requested: request another one',
      old.change_id using errcode = 'check_violation';
  end if;
  return new;
end $$;
revoke execute on function fn_device_schedule_changes_guard() from public;
