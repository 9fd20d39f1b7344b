-- Opens a day of an active site and first, one after the other, the days that nobody opened since
-- its newest one, each with the changes of its own date; the id of the last. Changes that are due
-- later, on a day that is open already, are applied too (C-70); what it expects stays (C-62). A day
-- that a camera's clock opens before its midnight expects what waits, which is applied at midnight.
create or replace function fn_open_days(site_id uuid, last_date date) returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  opened uuid;
  first_date date;
  today date;
  day date;
begin
  select s.session_id into opened
  from public.site_device_sessions s
  where s.site_id = fn_open_days.site_id and s.session_date = fn_open_days.last_date
    and not exists (
      select from public.device_schedule_changes c
      join public.devices d on d.device_id = c.device_id
      where d.site_id = s.site_id and c.effective_date <= s.session_date
        and c.applied_at is null and c.superseded_at is null and c.cancelled_at is null);
  if opened is not null then
    return opened;
  end if;
  perform public.fn_lock_site(fn_open_days.site_id);
  today := public.fn_site_today(fn_open_days.site_id);
  -- While it was not active nothing was missed.
  select greatest(max(n.session_date) + 1,
    public.fn_local_date(s.timezone, greatest(s.active_since, p.active_since)))
  into first_date
  from public.sites s
  join public.pilot_programs p on p.program_id = s.program_id
  -- A day that was opened while the clock was ahead is no reason to leave out those before it.
  left join public.site_device_sessions n on n.site_id = s.site_id
    and n.session_date <= fn_open_days.last_date
  where s.site_id = fn_open_days.site_id
  group by s.site_id, s.timezone, s.active_since, p.active_since
  having max(n.session_date) is not null;
  for day in
    select d::date
    from public.sites s, generate_series(
      least(first_date, fn_open_days.last_date)::timestamp, fn_open_days.last_date::timestamp,
      interval '1 day') d
    -- A place that crosses the date line skips a date.
    where s.site_id = fn_open_days.site_id
      and public.fn_local_date(s.timezone, public.fn_midnight(s.timezone, d::date)) = d::date
      -- The date was told before the lock was had: the site may have got another zone meanwhile.
      and (public.fn_midnight(s.timezone, d::date) <= public.fn_calendar_now() + interval '10 minutes'
        or exists (
          select from public.site_device_sessions o
          where o.site_id = s.site_id and o.session_date = d::date))
  loop
    opened := public.fn_open_day(fn_open_days.site_id, day,
      case when day <= today then public.fn_apply_schedule_changes(
        fn_open_days.site_id, day, 'fn_midnight_session_opener') else false end);
  end loop;
  return opened;
end $$;
revoke execute on function fn_open_days(uuid, date) from public;
grant execute on function fn_open_days(uuid, date) to farmiq_jobs;
