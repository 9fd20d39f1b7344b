-- fn_wakes_to_tell for one camera.
create or replace function fn_wake_to_tell(
  device_id uuid, min_seconds double precision default 60, spread_seconds double precision default 0)
returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select w.wake_at from public.fn_wakes_to_tell(array[fn_wake_to_tell.device_id],
    fn_wake_to_tell.min_seconds, fn_wake_to_tell.spread_seconds) w
$$;
revoke execute on function fn_wake_to_tell(uuid, double precision, double precision) from public;
grant execute on function fn_wake_to_tell(uuid, double precision, double precision)
  to farmiq_service, farmiq_jobs;
