-- An image is tried again (FN-08): with an address it has come, without one it is asked for. The
-- same rows, the original session, the original capture and telemetry. Of an image that is complete
-- already nothing changes (C-79). Times in the answer are UTC.
create or replace function fn_retry_image(image_id uuid, new_image_url text) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
declare
  status_before text;
  answer jsonb;
begin
  perform public.fn_lock_wake(fn_retry_image.image_id);
  select i.status into status_before
  from public.device_images i where i.image_id = fn_retry_image.image_id;
  if status_before <> 'complete' and fn_retry_image.new_image_url <> '' then
    perform public.fn_image_completion_handler(
      image_id => fn_retry_image.image_id, image_url => fn_retry_image.new_image_url);
    update public.device_images i
    set retry_count = i.retry_count + 1, resent_received_at = i.received_at
    where i.image_id = fn_retry_image.image_id;
    update public.device_wake_payloads p set resent_received_at = p.received_at
    where p.image_id = fn_retry_image.image_id;
  elsif status_before <> 'complete' then
    update public.device_images i
    set retry_count = i.retry_count + 1, resend_requested_at = public.fn_now()
    where i.image_id = fn_retry_image.image_id;
  end if;
  select jsonb_build_object('found', true, 'was_failed', status_before = 'failed',
    'is_complete', i.status = 'complete', 'retry_count', i.retry_count,
    'original_captured_at', i.captured_at)
  into answer
  from public.device_images i where i.image_id = fn_retry_image.image_id;
  return answer;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_retry_image(uuid, text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_retry_image(uuid, text) from public;
