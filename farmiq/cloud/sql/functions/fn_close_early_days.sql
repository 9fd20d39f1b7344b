-- Removes the days that a clock that was ahead has opened before their time, and that nothing came for:
-- they open again at their own midnight, with what holds then. How many. Call it only while the clock
-- is believed. A day with a wake stays: every wake is accounted for.
create or replace function fn_close_early_days() returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  day record;
  closed integer := 0;
begin
  for day in
    select s.session_id, s.site_id from public.site_device_sessions s
    -- No place is further from UTC than fifteen hours: spares looking at days that have begun.
    where s.session_date > (public.fn_calendar_now() - interval '15 hours') at time zone 'UTC'
      and s.status = 'pending' and public.fn_is_early(s.timezone, s.session_date)
    order by s.site_id, s.session_date
  loop
    perform public.fn_lock_site(day.site_id);
    perform from public.site_device_sessions s where s.session_id = day.session_id for update;
    continue when exists (
      select from public.device_wake_payloads p
      where p.site_device_session_id = day.session_id);
    delete from public.expected_wakes e where e.session_id = day.session_id;
    delete from public.site_device_sessions s where s.session_id = day.session_id;
    closed := closed + 1;
  end loop;
  return closed;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_close_early_days() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_close_early_days() from public;
grant execute on function fn_close_early_days() to farmiq_service;
