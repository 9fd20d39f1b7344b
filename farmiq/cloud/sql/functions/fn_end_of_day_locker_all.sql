-- Locks every day that is over in its own time zone, of active sites and of others (FN-04, C-54). A
-- site that fails does not stop the others; results has the sites that had something to lock.
create or replace function fn_end_of_day_locker_all() returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  site record;
  results jsonb[] := '{}';
  result jsonb;
  alerts integer := 0;
  errors integer := 0;
begin
  for site in
    select distinct s.site_id from public.site_device_sessions s
    where s.status <> 'locked'
      -- No place is further from UTC than fifteen hours: spares looking at days that are young.
      and s.session_date < (public.fn_calendar_now() + interval '15 hours') at time zone 'UTC'
      and public.fn_calendar_now()
        >= public.fn_midnight(s.timezone, s.session_date + 1) - interval '1 second'
    order by s.site_id
  loop
    begin
      result := public.fn_end_of_day_locker(site.site_id);
      alerts := alerts + (result ->> 'alerts_created')::integer;
      results := results || (jsonb_build_object('site_id', site.site_id) || result);
    exception when others then
      errors := errors + 1;
      results := results || jsonb_build_object('site_id', site.site_id, 'error', sqlerrm);
    end;
  end loop;
  return jsonb_build_object('total_alerts_created', alerts,
    'success_count', cardinality(results) - errors, 'error_count', errors,
    'results', to_jsonb(results));
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_end_of_day_locker_all() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_end_of_day_locker_all() from public;
grant execute on function fn_end_of_day_locker_all() to farmiq_service;
