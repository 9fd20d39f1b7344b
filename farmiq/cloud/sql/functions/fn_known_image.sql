-- The image that metadata speaks of, if it was announced before (C-59); null is a new capture.
-- Name and time say which, as long as the clock is believed, or was when the image came first. A
-- clock that is not repeats its times: then the content has to be equal too (fn_free_capture keeps
-- such captures apart by microseconds; a missing time was stored as that of arrival). Content that
-- says little proves little: it finds a complete image only while its answer may have been lost.
-- With a clock that is not believed, and only then, an image that was asked for again may come with
-- another time; also once more just after it came.
create or replace function fn_known_image(
  device_id uuid, image_name text, captured_at timestamptz, clock_suspect boolean,
  image_size bigint, total_chunks integer, telemetry_data jsonb)
returns uuid
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  known uuid;
begin
  if not fn_known_image.clock_suspect then
    return (
      select i.image_id from public.device_images i
      where i.device_id = fn_known_image.device_id and i.image_name = fn_known_image.image_name
        and i.captured_at = fn_known_image.captured_at);
  end if;
  select i.image_id into known
  from public.device_images i
  join public.device_wake_payloads p on p.image_id = i.image_id
  where i.device_id = fn_known_image.device_id and i.image_name = fn_known_image.image_name
    and i.captured_at >= coalesce(
      fn_known_image.captured_at, public.fn_now() - interval '168 hours')
    and i.captured_at < coalesce(fn_known_image.captured_at, i.created_at) + interval '1 second'
    and (fn_known_image.captured_at is not null or i.captured_at >= i.created_at)
    and (not p.clock_suspect and i.captured_at = fn_known_image.captured_at
      or p.clock_suspect
        and public.fn_same_telemetry(p.telemetry_data, fn_known_image.telemetry_data)
        and (i.image_size, i.total_chunks) is not distinct from
          (fn_known_image.image_size, fn_known_image.total_chunks)
        and (i.status <> 'complete' or i.received_at > public.fn_now() - interval '1 hour'
          or num_nulls(fn_known_image.captured_at, fn_known_image.image_size) = 0))
  order by i.created_at desc
  limit 1;
  if known is null then
    select i.image_id into known
    from public.device_images i
    where i.device_id = fn_known_image.device_id and i.image_name = fn_known_image.image_name
      and i.resend_requested_at is not null
      and (i.status <> 'complete'
        or (i.resent_received_at > public.fn_now() - interval '1 hour'
          and i.image_size = fn_known_image.image_size
          and i.total_chunks is not distinct from fn_known_image.total_chunks))
    order by i.status = 'complete', i.resend_requested_at desc
    limit 1;
  end if;
  return known;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_known_image(uuid, text, timestamptz, boolean, bigint, integer, jsonb) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_known_image(uuid, text, timestamptz, boolean, bigint, integer, jsonb) from public;
