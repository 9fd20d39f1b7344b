-- Which date it is at a site: that of the day which is open by its own clock, else by the site's.
create or replace function fn_site_today(site_id uuid) returns date
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(
    (select d.session_date from public.site_device_sessions d
    where d.session_id = public.fn_session_at(s.site_id, public.fn_calendar_now())),
    public.fn_local_date(s.timezone, public.fn_calendar_now()))
  from public.sites s where s.site_id = fn_site_today.site_id
$$;
revoke execute on function fn_site_today(uuid) from public;
grant execute on function fn_site_today(uuid) to farmiq_jobs;
