-- The first wake of a schedule strictly after a moment; null without a schedule, and if there is none
-- within five years.
create or replace function fn_next_wake(cron_expression text, timezone text, after timestamptz)
returns timestamptz
language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  s record;
  z record;
  zone text;
  wall timestamp;
  first_wall timestamp;
  today date;
  day date;
  first_wake timestamptz;
begin
  if coalesce(btrim(cron_expression, E' \t'), '') = '' or after is null then
    return null;
  elsif not isfinite(after) then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('there is no wake after %s', after);
  end if;
  zone := public.fn_zone_name(timezone);
  wall := after at time zone zone;
  today := wall::date;
  s := public.fn_cron_schedule(cron_expression);
  if s.problem is not null then
    raise exception using errcode = 'invalid_parameter_value', message = s.problem;
  end if;
  for day in
    select d from public.fn_cron_dates(
      s.days, s.months, s.weekdays, s.both_days, today, today + 7) d
  loop
    first_wall := (
      select day + make_interval(hours => h, mins => m)
      from unnest(s.hours) h, unnest(s.minutes) m
      where day + make_interval(hours => h, mins => m) > wall
      order by h, m limit 1);
    exit when first_wall is not null;
  end loop;
  -- Where no clock changes from two days before to the day after, the wall tells the moment.
  if first_wall is not null then
    z := public.fn_zone_stretches(zone, today - interval '72 hours', first_wall + interval '39 hours');
    if cardinality(z.starts) = 1 then
      return (first_wall - z.offsets[1]) at time zone 'UTC';
    end if;
  end if;
  -- A clock that goes back over midnight has a date twice: the dates beside it are looked at too.
  first_wake := (
    select min(w.expected_at)
    from generate_series(-1, 1) n,
      public.fn_wake_instants(cron_expression, timezone, today + n) w
    where w.expected_at > after);
  if first_wake is not null then
    return first_wake;
  end if;
  for day in
    select d from public.fn_cron_dates(
      s.days, s.months, s.weekdays, s.both_days, today + 1, today + 1830) d
  loop
    -- A wake that is lost in a gap at midnight happens on the next date.
    first_wake := (
      select min(w.expected_at)
      from generate_series(0, 1) n, public.fn_wake_instants(cron_expression, timezone, day + n) w
      where w.expected_at > after);
    exit when first_wake is not null;
  end loop;
  return first_wake;
end $$;
revoke execute on function fn_next_wake(text, text, timestamptz) from public;
grant execute on function fn_next_wake(text, text, timestamptz)
  to authenticated, farmiq_service, farmiq_jobs;
