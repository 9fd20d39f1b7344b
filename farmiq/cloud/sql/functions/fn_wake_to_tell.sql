-- When a camera is told to wake next (C-118): the first scheduled instant that is later than now and
-- min_seconds, and than every window that a wake of it was counted for already; null without one. With
-- spread_seconds each camera has a share of that time, always the same, and wakes so much later: at most
-- a quarter of the way to its next window or to the end of the day, so that the wake, also a late one,
-- counts for its own window.
create or replace function fn_wake_to_tell(
  device_id uuid, min_seconds double precision default 60, spread_seconds double precision default 0)
returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  moment timestamptz := public.fn_now();
  since timestamptz;
  zone text;
  wake_at timestamptz;
  room_ends timestamptz;
begin
  -- While the clock counts as wrong (fn_calendar_now), the camera itself may know better.
  if public.fn_calendar_now() <> moment and not exists (
    select from public.device_wake_payloads p
    where p.device_id = fn_wake_to_tell.device_id and not p.clock_suspect
      and p.captured_at between moment - interval '1 hour' and moment + interval '10 minutes') then
    moment := public.fn_calendar_now();
  end if;
  since := moment + make_interval(secs => min_seconds);
  -- A wake counts for a window at most an hour ahead of it, by a clock at most ten minutes ahead:
  -- what lies further was counted by a clock that was wrong.
  since := greatest(since, (
    select max(e.expected_at) from public.expected_wakes e
    where e.device_id = fn_wake_to_tell.device_id and e.expected_at > since
      and e.expected_at <= moment + interval '70 minutes'
      and exists (
        select from public.device_wake_payloads p
        where p.site_device_session_id = e.session_id and p.device_id = e.device_id
          and p.wake_window_index = e.wake_window_index and not p.overage_flag)));
  wake_at := public.fn_device_next_wake(fn_wake_to_tell.device_id, since);
  if wake_at is null or spread_seconds <= 0 then
    return wake_at;
  end if;
  select coalesce(s.timezone, c.timezone) into strict zone
  from public.devices d
  join public.companies c on c.company_id = d.company_id
  left join public.sites s on s.site_id = d.site_id
  where d.device_id = fn_wake_to_tell.device_id;
  room_ends := least(public.fn_device_next_wake(fn_wake_to_tell.device_id, wake_at),
    public.fn_midnight(zone, public.fn_local_date(zone, wake_at) + 1));
  return wake_at + make_interval(secs => floor(
    ((hashtextextended(fn_wake_to_tell.device_id::text, 0) & 65535) / 65536.0)::double precision
      * least(spread_seconds, extract(epoch from room_ends - wake_at) / 4)));
end $$;
revoke execute on function fn_wake_to_tell(uuid, double precision, double precision) from public;
grant execute on function fn_wake_to_tell(uuid, double precision, double precision)
  to farmiq_service, farmiq_jobs;
