-- Every moment at which a camera with this schedule wakes on a local date, in order and numbered from 1
-- (C-56, D-142). The only enumerator: expected counts, window index and next wake all come from it.
-- A wake belongs to the local date of the moment at which it really happens. No schedule, no rows.
create or replace function fn_wake_instants(cron_expression text, timezone text, session_date date)
returns table (wake_window_index integer, expected_at timestamptz)
language plpgsql stable parallel safe
rows 24
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  zone text;
  s record;
  z record;
begin
  if coalesce(btrim(cron_expression, E' \t'), '') = '' then
    return;
  end if;
  s := public.fn_cron_schedule(cron_expression);
  if s.problem is not null then
    raise exception using errcode = 'invalid_parameter_value', message = s.problem;
  elsif session_date is null or session_date not between '1900-01-01' and '9990-12-31' then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('%s is no date of a session', coalesce(session_date::text, 'null'));
  end if;
  zone := public.fn_zone_name(timezone);
  -- A change of the clock on the day before can still be felt on the day.
  z := public.fn_zone_stretches(
    zone, session_date - interval '48 hours', session_date + interval '39 hours');
  if cardinality(z.starts) = 1 then
    if not exists (
      select from public.fn_cron_dates(
        s.days, s.months, s.weekdays, s.both_days, session_date, session_date)) then
      return;
    end if;
    for hour in 1 .. cardinality(s.hours) loop
      for minute in 1 .. cardinality(s.minutes) loop
        wake_window_index := coalesce(wake_window_index, 0) + 1;
        expected_at := (session_date - z.offsets[1]
          + make_interval(hours => s.hours[hour], mins => s.minutes[minute])) at time zone 'UTC';
        return next;
      end loop;
    end loop;
  else
    return query
      select row_number() over (order by w.at)::integer, w.at at time zone 'UTC'
      from public.fn_wakes_of_change(s.minutes, s.hours, s.days, s.months, s.weekdays, s.both_days,
        s.by_the_clock, z.starts, z.offsets, session_date) w(at)
      order by w.at;
  end if;
end $$;
revoke execute on function fn_wake_instants(text, text, date) from public;
grant execute on function fn_wake_instants(text, text, date)
  to authenticated, farmiq_service, farmiq_jobs;
