-- The next wake of a schedule that follows the clock, across a change of the clock; in UTC, null if
-- there is none until last_date. It walks as cronsim 2.8 walks, hour by hour and minute by minute in
-- real time, because where a change is no whole hour, or midnight does not exist, the walk decides.
create or replace function fn_cron_step(
  minutes integer[], hours integer[], days integer[], months integer[], weekdays integer[],
  both_days boolean, starts timestamp[], offsets interval[], after_at timestamp, last_date date)
returns timestamp
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Where the wall clock enters each stretch: a time that comes twice is in the earlier stretch or,
  -- if it is known to be the second, in the later one; one that is left out likewise.
  earlier_walls constant timestamp[] := array(
    select starts[n] + coalesce(greatest(offsets[n - 1], offsets[n]), offsets[n])
    from generate_subscripts(starts, 1) n order by n);
  later_walls constant timestamp[] := array(
    select starts[n] + coalesce(least(offsets[n - 1], offsets[n]), offsets[n])
    from generate_subscripts(starts, 1) n order by n);
  at timestamp := after_at + interval '1 second';
  wall timestamp;
  is_second boolean;  -- of the two times with this name
  stretch integer;
  jumped boolean := false;
  in_hour boolean;
  whole timestamp;  -- hour or minute
  walk text := '';
  day date;
begin
  loop
    if not jumped then
      stretch := width_bucket(at, starts);
      wall := at + offsets[stretch];
      is_second := coalesce(starts[stretch] + (offsets[stretch - 1] - offsets[stretch]) > at, false);
    end if;
    jumped := false;
    if walk = 'hours' and extract(hour from wall) <> all (hours) and extract(hour from wall) <> 0 then
      at := at + interval '1 hour';
      continue;
    elsif walk = 'to the minute' and extract(minute from wall) <> all (minutes)
      or walk = 'minutes' and extract(minute from wall) <> all (minutes)
        and extract(minute from wall) <> 0 then
      at := at + interval '1 minute';
      walk := 'minutes';
      continue;
    end if;
    walk := '';
    day := (
      select d from public.fn_cron_dates(days, months, weekdays, both_days, wall::date, last_date) d
      limit 1);
    if day is null then
      return null;
    elsif day > wall::date then
      wall := day;
      is_second := wall - offsets[width_bucket(wall, earlier_walls)] < at;  -- never back in time
      at := wall - offsets[width_bucket(
        wall, case when is_second then later_walls else earlier_walls end)];
      jumped := true;
      continue;
    end if;
    in_hour := extract(hour from wall) = any (hours);
    if in_hour and extract(minute from wall) = any (minutes) then
      if extract(second from wall) = 0 then
        return at;
      end if;
      at := at + make_interval(secs => 60 - extract(second from wall)::integer);
      continue;
    end if;
    whole := date_trunc(case when in_hour then 'minute' else 'hour' end, wall);
    at := greatest(at - (wall - whole), whole - offsets[width_bucket(
      whole, case when is_second then later_walls else earlier_walls end)]);
    if not in_hour then
      at := at + interval '1 hour';
      walk := 'hours';
    elsif cardinality(minutes) = 1 then
      at := at + make_interval(mins => (60 + minutes[1] - extract(minute from whole)::integer) % 60);
      walk := 'to the minute';
    else
      at := at + interval '1 minute';
      walk := 'minutes';
    end if;
  end loop;
end $$;
revoke execute on function fn_cron_step(integer[], integer[], integer[], integer[], integer[], boolean,
  timestamp[], interval[], timestamp, date) from public;
grant execute on function fn_cron_step(integer[], integer[], integer[], integer[], integer[], boolean,
  timestamp[], interval[], timestamp, date) to authenticated, farmiq_service, farmiq_jobs;
