-- The session of a site whose own clock says its date at this instant: a day keeps the zone it was
-- opened in when its site gets another one. Where two do, the one that was opened first.
create or replace function fn_session_at(site_id uuid, at timestamptz) returns uuid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select s.session_id from public.site_device_sessions s
  where s.site_id = fn_session_at.site_id
    -- No place is further from UTC than fifteen hours.
    and s.session_date between (fn_session_at.at at time zone 'UTC')::date - 1
      and (fn_session_at.at at time zone 'UTC')::date + 1
    and s.session_date = public.fn_local_date(s.timezone, fn_session_at.at)
  order by s.opened_at, s.session_date
  limit 1
$$;
revoke execute on function fn_session_at(uuid, timestamptz) from public;
grant execute on function fn_session_at(uuid, timestamptz)
  to authenticated, farmiq_service, farmiq_jobs;
