-- Locks a session, gives up what was not heard of for five minutes (C-68) and opens the alerts of
-- the day; how many of them are new. A locked one stays as it is.
create or replace function fn_lock_day(session_id uuid) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  day record;
  created integer;
begin
  select s.company_id, s.site_id, s.session_date into day
  from public.site_device_sessions s
  where s.session_id = fn_lock_day.session_id and s.status <> 'locked'
  for no key update;
  if not found then
    return 0;
  end if;
  perform public.fn_image_failure_handler(image_id => p.image_id, error_code => 'TIMEOUT',
    error_message => 'it was not complete when its day was locked')
  from public.device_wake_payloads p
  where p.site_device_session_id = fn_lock_day.session_id and p.payload_status = 'pending'
    and public.fn_last_sign(p.image_id) < public.fn_calendar_now() - interval '5 minutes';
  update public.site_device_sessions s set status = 'in_progress'
  where s.session_id = fn_lock_day.session_id and s.status = 'pending';
  update public.site_device_sessions s set status = 'locked', locked_at = public.fn_calendar_now()
  where s.session_id = fn_lock_day.session_id;
  select count(*) filter (where public.fn_raise_alert(
    company_id => day.company_id, site_id => day.site_id, device_id => a.device_id,
    session_id => fn_lock_day.session_id, image_id => null, alert_type => a.alert_type,
    alert_date => day.session_date, message => a.message, details => a.details))
  into created
  from public.fn_day_alerts(fn_lock_day.session_id) a;
  return created;
end $$;
revoke execute on function fn_lock_day(uuid) from public;
grant execute on function fn_lock_day(uuid) to farmiq_jobs;
