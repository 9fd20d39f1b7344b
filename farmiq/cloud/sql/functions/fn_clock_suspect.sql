-- Whether a camera's clock is not to be believed (C-58): no time, more than ten minutes ahead, more
-- than seven days ago although the image did not wait in the camera. Before 2020 no image was taken:
-- clocks that lost their time start in such years, and then waiting explains nothing.
create or replace function fn_clock_suspect(
  captured_at timestamptz, received_at timestamptz, pending boolean)
returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select captured_at is null
    or captured_at > received_at + interval '10 minutes'
    or captured_at < '2020-01-01T00:00:00Z'::timestamptz
    or (captured_at < received_at - interval '168 hours' and not pending)
$$;
revoke execute on function fn_clock_suspect(timestamptz, timestamptz, boolean) from public;
grant execute on function fn_clock_suspect(timestamptz, timestamptz, boolean) to farmiq_jobs;
