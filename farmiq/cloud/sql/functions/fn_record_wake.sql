-- Writes a wake that nobody knows yet into a session, with its image. Call it with the camera and
-- the session held. at is the time that counts for its window: captured_at, where that is believed.
create or replace function fn_record_wake(
  session_id uuid, device_id uuid, captured_at timestamptz, at timestamptz, clock_suspect boolean,
  image_name text, image_size bigint, total_chunks integer, telemetry_data jsonb)
returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  day record;
  found_window record;
  image uuid := public.fn_uuid_v7();
  said alias for telemetry_data;
  arrived text := to_char(fn_record_wake.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
  -- A clock that is not believed is minutes or more beside the arrival. A time that was not said is
  -- the arrival, or some microseconds more (fn_free_capture).
  timeless boolean := fn_record_wake.captured_at >= fn_record_wake.at
    and fn_record_wake.captured_at < fn_record_wake.at + interval '1 second';
begin
  select s.company_id, s.program_id, s.site_id, s.session_date, s.status into day
  from public.site_device_sessions s where s.session_id = fn_record_wake.session_id;
  if day.status = 'pending' then
    update public.site_device_sessions s set status = 'in_progress'
    where s.session_id = fn_record_wake.session_id;
  end if;
  select w.wake_window_index, w.overage_reason into found_window
  from public.fn_wake_window(
    fn_record_wake.session_id, fn_record_wake.device_id, fn_record_wake.at) w;
  insert into public.device_images (image_id, company_id, device_id, image_name, captured_at,
    original_capture_date, image_size, total_chunks, created_at)
  values (image, day.company_id, fn_record_wake.device_id, fn_record_wake.image_name,
    fn_record_wake.captured_at, day.session_date, fn_record_wake.image_size,
    fn_record_wake.total_chunks, public.fn_now());
  insert into public.device_wake_payloads (payload_id, company_id, program_id, site_id,
    site_device_session_id, device_id, image_id, captured_at, wake_window_index, temperature,
    humidity, pressure, gas_resistance, battery_voltage, wifi_rssi, telemetry_data, overage_flag,
    overage_reason, clock_suspect, created_at)
  values (public.fn_uuid_v7(), day.company_id, day.program_id, day.site_id,
    fn_record_wake.session_id, fn_record_wake.device_id, image, fn_record_wake.captured_at,
    found_window.wake_window_index, public.fn_jsonb_number(said -> 'temperature'),
    public.fn_jsonb_number(said -> 'humidity'), public.fn_jsonb_number(said -> 'pressure'),
    public.fn_jsonb_number(said -> 'gas_resistance'),
    public.fn_jsonb_number(said -> 'battery_voltage'),
    public.fn_jsonb_number(said -> 'wifi_rssi'), said, found_window.overage_reason is not null,
    found_window.overage_reason, fn_record_wake.clock_suspect, public.fn_now());
  if fn_record_wake.clock_suspect then
    perform public.fn_raise_alert(
      company_id => day.company_id, alert_type => 'clock_suspect',
      alert_date => day.session_date,
      message => case when timeless
        then format('%s came without a time; its arrival at %s counts as one',
          fn_record_wake.image_name, arrived)
        else format('the clock of the camera cannot be right: %s came with %s; its arrival at %s counts',
          fn_record_wake.image_name,
          to_char(fn_record_wake.captured_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
          arrived) end,
      device_id => fn_record_wake.device_id, site_id => day.site_id,
      session_id => fn_record_wake.session_id, image_id => image,
      details => jsonb_build_object('image_name', fn_record_wake.image_name, 'captured_at',
        case when not timeless then fn_record_wake.captured_at end, 'assumed_at', fn_record_wake.at));
  end if;
  return image;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_record_wake(uuid, uuid, timestamptz, timestamptz, boolean, text, bigint, integer, jsonb) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_record_wake(uuid, uuid, timestamptz, timestamptz, boolean, text, bigint, integer, jsonb) from public;
