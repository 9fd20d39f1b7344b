-- Whether a camera of the person's company has a login, since when, and whether it is held out; never
-- the secret or its hash. A company that does not have the camera gets no row.
create or replace function fn_camera_login(device_id uuid)
returns table (made_at timestamptz, revoked_at timestamptz, paused_until timestamptz)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select l.made_at, l.revoked_at, l.paused_until
  from public.camera_logins l
  where l.device_id = fn_camera_login.device_id
    and l.company_id = public.get_active_company_id()
$$;
grant create on schema public to farmiq_jobs;
alter function fn_camera_login(uuid) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_camera_login(uuid) from public;
grant execute on function fn_camera_login(uuid) to authenticated;
