-- The time by which days of cameras open and lock: fn_now(), put right while cloud-camera-calendar knows
-- that the clock has jumped ahead (calendar_clock). As soon as the clock is back it is far from what
-- it was when that was written, and counts as it is. When a wake came is what fn_now() says: a day that
-- opens late harms nobody, a camera that is not believed does.
create or replace function fn_calendar_now() returns timestamptz
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select n.at - coalesce((
    select c.ahead from public.calendar_clock c
    where c.ahead > interval '0'
      and n.at between c.looked_at - interval '30 minutes' and c.looked_at + interval '30 minutes'),
    interval '0')
  from (select public.fn_now() as at) n
$$;
