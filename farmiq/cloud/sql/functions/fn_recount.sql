-- What the wakes of a session add up to.
create or replace function fn_recount(
  session_id uuid, out completed integer, out failed integer, out extra integer)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select count(*) filter (where p.payload_status = 'complete')::integer,
    count(*) filter (where p.payload_status = 'failed')::integer,
    count(*) filter (where p.overage_flag)::integer
  from public.device_wake_payloads p
  where p.site_device_session_id = fn_recount.session_id
$$;
revoke execute on function fn_recount(uuid) from public;
grant execute on function fn_recount(uuid) to farmiq_jobs;
