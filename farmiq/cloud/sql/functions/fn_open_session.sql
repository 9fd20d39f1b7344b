-- The session of a site and date, made if there is none (C-62): today through the opener, a day that
-- is over by what held then. A camera's clock may be ten minutes ahead (C-58): so much before its
-- midnight a day may be opened for a wake of it, and not earlier.
create or replace function fn_open_session(site_id uuid, session_date date) returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  site record;
  today date;
  opened uuid := (
    select s.session_id from public.site_device_sessions s
    where s.site_id = fn_open_session.site_id
      and s.session_date = fn_open_session.session_date);
begin
  if opened is not null then
    return opened;
  end if;
  select s.timezone, s.is_active and p.is_active as is_active into site
  from public.sites s join public.pilot_programs p on p.program_id = s.program_id
  where s.site_id = fn_open_session.site_id;
  today := public.fn_site_today(fn_open_session.site_id);
  if site is null or fn_open_session.session_date >= today and not site.is_active then
    perform public.fn_active_site_zone(fn_open_session.site_id);
  end if;
  if fn_open_session.session_date is null or fn_open_session.session_date
    > public.fn_local_date(site.timezone, public.fn_now() + interval '10 minutes') then
    raise exception 'the day % of site % has not begun', fn_open_session.session_date,
      fn_open_session.site_id using errcode = 'invalid_parameter_value';
  end if;
  -- What was missed is opened in order, so that changes are applied in order. Not by a clock that the
  -- calendar has not seen: if it has jumped ahead, days would open and changes be applied early.
  if site.is_active and public.fn_clock_seen() then
    perform public.fn_open_days(
      fn_open_session.site_id, greatest(today, fn_open_session.session_date));
  end if;
  perform public.fn_lock_site(fn_open_session.site_id);
  return public.fn_open_day(fn_open_session.site_id, fn_open_session.session_date, false);
end $$;
revoke execute on function fn_open_session(uuid, date) from public;
grant execute on function fn_open_session(uuid, date) to farmiq_jobs;
