-- Locks the days of a site that are over, and today from 23:59:59 of its own clock (FN-03, C-55).
-- The counts are those of the newest one locked, else of the newest there is.
create or replace function fn_end_of_day_locker(site_id uuid) returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  day record;
  newest uuid;
  alerts integer := 0;
begin
  if not exists (
    select from public.sites s where s.site_id = fn_end_of_day_locker.site_id) then
    raise exception 'there is no site %', coalesce(fn_end_of_day_locker.site_id::text, 'null')
      using errcode = 'no_data_found';
  end if;
  for day in
    select s.session_id from public.site_device_sessions s
    where s.site_id = fn_end_of_day_locker.site_id and s.status <> 'locked'
      and public.fn_calendar_now()
        >= public.fn_midnight(s.timezone, s.session_date + 1) - interval '1 second'
    order by s.session_date
  loop
    alerts := alerts + public.fn_lock_day(day.session_id);
    newest := day.session_id;
  end loop;
  return jsonb_build_object('alerts_created', alerts, 'completed_wake_count', null,
      'failed_wake_count', null, 'expected_wake_count', null)
    || coalesce((
      select jsonb_build_object('completed_wake_count', s.completed_wake_count,
        'failed_wake_count', s.failed_wake_count, 'expected_wake_count', s.expected_wake_count)
      from public.site_device_sessions s
      where s.site_id = fn_end_of_day_locker.site_id
        and s.session_id = coalesce(newest, s.session_id)
      order by s.session_date desc limit 1), '{}');
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_end_of_day_locker(uuid) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_end_of_day_locker(uuid) from public;
grant execute on function fn_end_of_day_locker(uuid) to farmiq_service;
