-- Opens an alert for every session that fn_counters_differing finds and sets its counters to what its
-- wakes add up to; how many it finds. What a day expects stays as it was opened (C-62): there the alert
-- stays alone.
create or replace function fn_alert_counters_differing() returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  session record;
  found integer := 0;
begin
  for session in select * from public.fn_counters_differing() loop
    found := found + 1;
    -- Held, so that nothing is counted between the recount and what is written.
    perform from public.site_device_sessions s
    where s.session_id = session.session_id for no key update;
    update public.site_device_sessions s
    set completed_wake_count = c.completed, failed_wake_count = c.failed, extra_wake_count = c.extra
    from public.fn_recount(session.session_id) c
    where s.session_id = session.session_id;
    perform public.fn_raise_alert(
      company_id => session.company_id, site_id => session.site_id, device_id => null,
      session_id => session.session_id, image_id => null, alert_type => 'counters_differ',
      alert_date => session.session_date,
      message => format('the counters of %s were not what its wakes add up to%s',
        session.session_date,
        case when session.counted -> 'expected' = session.recounted -> 'expected'
          then '; they were set right' else '' end),
      details => jsonb_build_object('counted', session.counted, 'recounted', session.recounted));
  end loop;
  return found;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_alert_counters_differing() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_alert_counters_differing() from public;
grant execute on function fn_alert_counters_differing() to farmiq_service;
