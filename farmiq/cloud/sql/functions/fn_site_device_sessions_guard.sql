-- A day's status goes forward only, what it was opened with stays, and no day that has begun is ever
-- deleted. Its counters change only from within the trigger that counts its payloads, or to what a
-- recount of them gives.
create or replace function fn_site_device_sessions_guard() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'INSERT' then
    if (new.completed_wake_count, new.failed_wake_count, new.extra_wake_count, new.late_updates)
      <> (0, 0, 0, 0) then
      raise exception 'session % opens with nothing counted', new.session_id
        using errcode = 'check_violation';
    end if;
    return new;
  end if;
  if tg_op = 'DELETE' then
    if public.fn_is_early(old.timezone, old.session_date) then
      return old;
    end if;
    raise exception 'session % cannot be deleted: a day that was opened is kept', old.session_id
      using errcode = 'restrict_violation';
  end if;
  if (old.status, new.status) not in (
    ('pending', 'pending'), ('pending', 'in_progress'), ('in_progress', 'in_progress'),
    ('in_progress', 'locked'), ('locked', 'locked')) then
    raise exception 'session % goes from pending to in_progress to locked, never from % to %',
      old.session_id, old.status, new.status using errcode = 'check_violation';
  end if;
  if (new.session_id, new.company_id, new.program_id, new.site_id, new.session_date, new.timezone,
      new.expected_wake_count, new.opened_at) is distinct from
     (old.session_id, old.company_id, old.program_id, old.site_id, old.session_date, old.timezone,
      old.expected_wake_count, old.opened_at)
    or (old.locked_at is not null and new.locked_at is distinct from old.locked_at)
    or (old.config_changed_flag and not new.config_changed_flag)
    or new.late_updates < old.late_updates then
    raise exception 'session % keeps what it was opened with', old.session_id
      using errcode = 'check_violation';
  end if;
  -- Written by hand this is the only trigger at work.
  if pg_trigger_depth() < 2
    and (new.completed_wake_count, new.failed_wake_count, new.extra_wake_count, new.late_updates)
      <> (old.completed_wake_count, old.failed_wake_count, old.extra_wake_count, old.late_updates)
  then
    -- By hand they may only be set right.
    if new.late_updates <> old.late_updates or not exists (
      select from public.fn_recount(new.session_id) c
      where (c.completed, c.failed, c.extra)
        = (new.completed_wake_count, new.failed_wake_count, new.extra_wake_count)) then
      raise exception 'session % is counted from its wakes, not by hand', old.session_id
        using errcode = 'check_violation';
    end if;
  end if;
  return new;
end $$;
revoke execute on function fn_site_device_sessions_guard() from public;
