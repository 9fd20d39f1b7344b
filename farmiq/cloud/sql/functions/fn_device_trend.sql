-- A camera's temperature by day (DB2-17). The day is its session's, that is its site's own (C-60);
-- days counts back from today there. Averages are of numeric: their order does not matter.
create or replace function fn_device_trend(device_id uuid, days integer default 30)
returns table (date date, avg_temp numeric, min_temp numeric, max_temp numeric, wakes bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select s.session_date, round(avg(p.temperature::numeric), 2), min(p.temperature::numeric),
      max(p.temperature::numeric), count(*)
    from public.device_wake_payloads p
    join public.site_device_sessions s on s.session_id = p.site_device_session_id
    where p.device_id = fn_device_trend.device_id
      and s.session_date >= public.fn_local_date(s.timezone, public.fn_now()) - least(greatest(fn_device_trend.days, 1), 3660)
    group by s.session_date
    order by s.session_date;
end $$;
revoke execute on function fn_device_trend(uuid, integer) from public;
grant execute on function fn_device_trend(uuid, integer) to authenticated, farmiq_service;
