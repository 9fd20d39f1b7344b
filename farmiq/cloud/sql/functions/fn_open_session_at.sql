-- The session to which an instant at a site belongs: the day that has it, by the zone that the day
-- was opened in; only if none has it the site's zone tells the date, and its session is made if
-- there is none.
create or replace function fn_open_session_at(site_id uuid, at timestamptz) returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  found uuid := public.fn_session_at(fn_open_session_at.site_id, fn_open_session_at.at);
begin
  if found is null then
    -- The zone must not change, nor a day open, between looking and making.
    perform public.fn_lock_site(fn_open_session_at.site_id);
    found := public.fn_session_at(fn_open_session_at.site_id, fn_open_session_at.at);
  end if;
  return coalesce(found, public.fn_open_session(fn_open_session_at.site_id, (
    select public.fn_local_date(s.timezone, fn_open_session_at.at)
    from public.sites s where s.site_id = fn_open_session_at.site_id)));
end $$;
revoke execute on function fn_open_session_at(uuid, timestamptz) from public;
grant execute on function fn_open_session_at(uuid, timestamptz) to farmiq_jobs;
