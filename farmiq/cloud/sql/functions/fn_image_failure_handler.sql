-- The transmission of an image was given up: its wake has failed until the image comes after all,
-- and somebody is told (FN-07). A complete image stays complete. One that has failed already fails
-- again, with another reason and alert, only if it was asked for since.
create or replace function fn_image_failure_handler(
  image_id uuid, error_code text, error_message text)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  wake record;
  alerted boolean := false;
begin
  perform public.fn_lock_wake(fn_image_failure_handler.image_id);
  select i.status, i.image_name, i.resend_requested_at, p.company_id, p.site_id, p.device_id,
    p.site_device_session_id, s.session_date
  into wake
  from public.device_images i
  join public.device_wake_payloads p on p.image_id = i.image_id
  join public.site_device_sessions s on s.session_id = p.site_device_session_id
  where i.image_id = fn_image_failure_handler.image_id;
  if wake.status = 'receiving'
    or (wake.status = 'failed' and wake.resend_requested_at is not null) then
    update public.device_images i
    set status = 'failed', error_code = fn_image_failure_handler.error_code,
      error_message = fn_image_failure_handler.error_message
    where i.image_id = fn_image_failure_handler.image_id;
    update public.device_wake_payloads p set payload_status = 'failed'
    where p.image_id = fn_image_failure_handler.image_id and p.payload_status = 'pending';
    alerted := public.fn_raise_alert(
      company_id => wake.company_id, alert_type => 'image_transmission_failed',
      alert_date => wake.session_date,
      message => format('%s did not arrive: %s', wake.image_name,
        coalesce(fn_image_failure_handler.error_message, fn_image_failure_handler.error_code,
          'no reason given')),
      device_id => wake.device_id, site_id => wake.site_id,
      session_id => wake.site_device_session_id,
      image_id => fn_image_failure_handler.image_id,
      details => jsonb_build_object('image_name', wake.image_name,
        'error_code', fn_image_failure_handler.error_code));
  end if;
  return jsonb_build_object('device_id', wake.device_id,
    'error_code', fn_image_failure_handler.error_code, 'alert_created', alerted);
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_image_failure_handler(uuid, text, text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_image_failure_handler(uuid, text, text) from public;
grant execute on function fn_image_failure_handler(uuid, text, text) to farmiq_service;
