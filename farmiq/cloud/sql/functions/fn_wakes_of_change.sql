-- The wakes of a local date, in UTC, where the clock changes on it or on the day before.
-- By the clock: all times of each stretch, from the first that the walk over the change reaches (the
-- walk is what differs between clocks; inside a stretch it finds every time), and every time that the
-- wall shows exactly once, also where the walk steps over it (C-119). Else each time of the wall
-- once: at the first of two, or when the clock goes on after a gap.
create or replace function fn_wakes_of_change(
  minutes integer[], hours integer[], days integer[], months integer[], weekdays integer[],
  both_days boolean, by_the_clock boolean, starts timestamp[], offsets interval[], session_date date)
returns setof timestamp
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  walls constant timestamp[] := array(
    select d.day + make_interval(hours => h.hour, mins => m.minute)
    from public.fn_cron_dates(
        days, months, weekdays, both_days, session_date - 2, session_date + 1) d(day),
      unnest(hours) h(hour), unnest(minutes) m(minute));
  entered timestamp;
  left_at timestamp;
  latest timestamp := session_date - interval '48 hours';
  kept timestamp[] := '{}';
  found timestamp[];
begin
  for n in 1 .. cardinality(starts) loop
    left_at := coalesce(starts[n + 1], 'infinity');
    if not by_the_clock then
      found := array(
        select least(w.wall - offsets[n], left_at) from unnest(walls) w(wall)
        where w.wall >= starts[n] + coalesce(greatest(offsets[n - 1], offsets[n]), offsets[n])
          and w.wall < coalesce(starts[n + 1] + greatest(offsets[n], offsets[n + 1]), 'infinity'));
    else
      entered := starts[n];
      found := '{}';
      if n > 1 then
        entered := public.fn_cron_step(minutes, hours, days, months, weekdays, both_days, starts,
          offsets, latest, session_date + 1);
        if entered < left_at then
          found := array[entered];
        end if;
      end if;
      found := found || array(
        select w.wall - offsets[n] from unnest(walls) w(wall)
        where w.wall > entered + offsets[n] and w.wall < left_at + offsets[n]);
      latest := greatest(latest, (select max(f) from unnest(found) f));
      -- Not before `latest` is known: the walk goes on from where it was itself.
      found := found || array(
        select w.wall - offsets[n] from unnest(walls) w(wall)
        where w.wall >= starts[n] + offsets[n] and w.wall < left_at + offsets[n]
          and not exists (
            select from generate_subscripts(starts, 1) m
            where m <> n and w.wall >= starts[m] + offsets[m]
              and w.wall < coalesce(starts[m + 1], 'infinity') + offsets[m]));
    end if;
    kept := kept || found;
  end loop;
  return query
    select distinct k.at from unnest(kept) k(at)
    where (k.at + offsets[width_bucket(k.at, starts)])::date = session_date;
end $$;
revoke execute on function fn_wakes_of_change(integer[], integer[], integer[], integer[], integer[],
  boolean, boolean, timestamp[], interval[], date) from public;
grant execute on function fn_wakes_of_change(integer[], integer[], integer[], integer[], integer[],
  boolean, boolean, timestamp[], interval[], date) to authenticated, farmiq_service, farmiq_jobs;
