-- Opens today of a site, by its own clock, and the days that were missed before it (FN-01): applies
-- the changes of schedules that are due, expects the wakes of the day, makes the session or finds it.
-- A day that goes on in the zone it was opened in is today, whatever zone its site has by now.
create or replace function fn_midnight_session_opener(site_id uuid) returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  opened uuid;
begin
  perform public.fn_active_site_zone(site_id);
  opened := public.fn_open_days(site_id, public.fn_site_today(site_id));
  if opened is null then
    -- The zone changed while it waited for the site, which nobody else has any more.
    opened := public.fn_open_days(site_id, public.fn_site_today(site_id));
  end if;
  return (
    select jsonb_build_object('session_id', s.session_id,
      'expected_wake_count', s.expected_wake_count, 'config_changed', s.config_changed_flag)
    from public.site_device_sessions s where s.session_id = opened);
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_midnight_session_opener(uuid) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_midnight_session_opener(uuid) from public;
grant execute on function fn_midnight_session_opener(uuid) to farmiq_service;
