-- Opens an alert for every session that fn_counters_differing finds; how many it finds.
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
    perform public.fn_raise_alert(
      company_id => session.company_id, site_id => session.site_id, device_id => null,
      session_id => session.session_id, image_id => null, alert_type => 'counters_differ',
      alert_date => session.session_date,
      message => format('the counters of %s are not what its wakes add up to',
        session.session_date),
      details => jsonb_build_object('counted', session.counted, 'recounted', session.recounted));
  end loop;
  return found;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_alert_counters_differing() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_alert_counters_differing() from public;
grant execute on function fn_alert_counters_differing() to farmiq_service;
