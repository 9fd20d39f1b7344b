-- The time under which a capture is kept: the camera's. Where its clock is not believed and has said
-- the same for another image of that name, a microsecond more than the last of those.
create or replace function fn_free_capture(device_id uuid, image_name text, captured_at timestamptz)
returns timestamptz
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(max(i.captured_at) + interval '1 microsecond', fn_free_capture.captured_at)
  from public.device_images i
  where i.device_id = fn_free_capture.device_id and i.image_name = fn_free_capture.image_name
    and i.captured_at >= fn_free_capture.captured_at
    and i.captured_at < fn_free_capture.captured_at + interval '1 second'
$$;
grant create on schema public to farmiq_jobs;
alter function fn_free_capture(uuid, text, timestamptz) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_free_capture(uuid, text, timestamptz) from public;
