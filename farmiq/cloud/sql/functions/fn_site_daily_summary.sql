-- A site's days (DB2-18). completeness_pct is null for a day that expects nothing, and is not
-- capped: an extra wake may take it above 100 (C-75).
create or replace function fn_site_daily_summary(site_id uuid, days integer default 30)
returns table (session_date date, expected_wake_count integer, completed_wake_count integer,
  failed_wake_count integer, completeness_pct numeric, avg_temp numeric, avg_humidity numeric,
  extra_wake_count integer, session_id uuid)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select s.session_date, s.expected_wake_count, s.completed_wake_count, s.failed_wake_count,
    round(s.completed_wake_count * 100.0 / nullif(s.expected_wake_count, 0), 2),
    w.avg_temp, w.avg_humidity, s.extra_wake_count, s.session_id
  from public.site_device_sessions s
  cross join lateral (
    select round(avg(p.temperature::numeric), 2) as avg_temp,
      round(avg(p.humidity::numeric), 2) as avg_humidity
    from public.device_wake_payloads p where p.site_device_session_id = s.session_id) w
  where s.site_id = fn_site_daily_summary.site_id
    and s.session_date
      >= public.fn_local_date(s.timezone, public.fn_now()) - least(greatest(fn_site_daily_summary.days, 1), 3660)
  order by s.session_date
$$;
revoke execute on function fn_site_daily_summary(uuid, integer) from public;
grant execute on function fn_site_daily_summary(uuid, integer) to authenticated, farmiq_service;
