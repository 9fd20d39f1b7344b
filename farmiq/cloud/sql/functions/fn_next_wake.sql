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
  today := (after at time zone public.fn_zone_name(timezone))::date;
  -- A clock that goes back over midnight has a date twice: the dates beside it are looked at too.
  first_wake := (
    select min(w.expected_at)
    from generate_series(-1, 1) n,
      public.fn_wake_instants(cron_expression, timezone, today + n) w
    where w.expected_at > after);
  if first_wake is not null then
    return first_wake;
  end if;
  s := public.fn_cron_schedule(cron_expression);
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
