-- Applies what is due at a site on a date and says whether there was anything (DS-12, C-71): of each
-- camera the newest request; requests older than that one have lost. Call it under fn_lock_site.
create or replace function fn_apply_schedule_changes(
  site_id uuid, local_date date, applied_by_function text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  winner record;
  any_applied boolean := false;
begin
  -- A day that is open already waits in the order of all: session, then camera.
  perform from public.site_device_sessions s
  where s.site_id = fn_apply_schedule_changes.site_id
    and s.session_date = fn_apply_schedule_changes.local_date
  for no key update;
  for winner in
    select distinct on (c.device_id) c.change_id, c.device_id, c.new_wake_schedule_cron,
      c.requested_at, c.position, d.wake_schedule_cron
    from public.device_schedule_changes c
    join public.devices d on d.device_id = c.device_id
    where d.site_id = fn_apply_schedule_changes.site_id
      and c.effective_date <= fn_apply_schedule_changes.local_date
      and c.applied_at is null and c.superseded_at is null and c.cancelled_at is null
    order by c.device_id, c.requested_at desc, c.position desc
  loop
    update public.device_schedule_changes c set superseded_at = public.fn_calendar_now()
    where c.device_id = winner.device_id
      and (c.requested_at, c.position) < (winner.requested_at, winner.position)
      and c.applied_at is null and c.superseded_at is null and c.cancelled_at is null;
    update public.device_schedule_changes c
    set applied_at = public.fn_calendar_now(),
      applied_by_function = fn_apply_schedule_changes.applied_by_function,
      previous_wake_schedule_cron = winner.wake_schedule_cron
    where c.change_id = winner.change_id;
    update public.devices d set wake_schedule_cron = winner.new_wake_schedule_cron
    where d.device_id = winner.device_id;
    any_applied := true;
  end loop;
  return any_applied;
end $$;
revoke execute on function fn_apply_schedule_changes(uuid, date, text) from public;
grant execute on function fn_apply_schedule_changes(uuid, date, text) to farmiq_jobs;
