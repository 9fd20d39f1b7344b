-- The metadata of an image has come (FN-05): the wake is written down in the session of the day on
-- which it was captured, or is found, if it was announced before. What the camera said is kept as it
-- said it; readings that are numbers also stand in columns.
create or replace function fn_wake_ingestion_handler(
  device_id uuid, captured_at timestamptz, image_name text, telemetry_data jsonb)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
declare
  came timestamptz := public.fn_now();
  said jsonb := coalesce(telemetry_data, '{}');
  -- No calendar of ours goes further, nor does arithmetic with it.
  taken_at timestamptz := case when captured_at between '0001-01-01' and '9999-12-31'
    then captured_at end;
  suspect boolean := public.fn_clock_suspect(
    taken_at, came, coalesce(said ->> 'pending', '') in ('true', '1'));
  at timestamptz := case when suspect then came else taken_at end;
  size bigint := public.fn_jsonb_count(said -> 'image_size');
  chunks integer := public.fn_jsonb_count(
    coalesce(said -> 'total_chunks', said -> 'total_chunks_count'));
  image uuid;
  session uuid;
  site uuid;
begin
  if coalesce(fn_wake_ingestion_handler.image_name, '') = '' then
    raise exception 'metadata of camera % names no image', fn_wake_ingestion_handler.device_id
      using errcode = 'invalid_parameter_value';
  end if;
  perform public.fn_check_image_name(fn_wake_ingestion_handler.image_name);
  image := public.fn_known_image(fn_wake_ingestion_handler.device_id,
    fn_wake_ingestion_handler.image_name, taken_at, suspect, size, chunks, said);
  if image is not null then
    update public.device_images i
    set image_size = coalesce(size, i.image_size), total_chunks = coalesce(chunks, i.total_chunks),
      announced_at = came
    where i.image_id = image and i.status <> 'complete';
    perform public.fn_device_seen(fn_wake_ingestion_handler.device_id, at, null, null);
    return public.fn_wake_answer(image);
  end if;
  -- Of one camera one wake at a time: another connection may bring the same metadata.
  perform pg_advisory_xact_lock(
    hashtextextended('farmiq camera ' || fn_wake_ingestion_handler.device_id, 0));
  site := public.fn_wake_lineage(fn_wake_ingestion_handler.device_id, at);
  -- A day may be opened ten minutes ahead of its midnight and no earlier.
  session := public.fn_open_session_at(site, (
    select least(at + make_interval(secs => s.early_wake_snap_seconds), came + interval '10 minutes')
    from public.sites s where s.site_id = site));
  perform from public.site_device_sessions s where s.session_id = session for no key update;
  image := public.fn_known_image(fn_wake_ingestion_handler.device_id,
    fn_wake_ingestion_handler.image_name, taken_at, suspect, size, chunks, said);
  if image is null then
    taken_at := coalesce(taken_at, came);
    if suspect then
      taken_at := public.fn_free_capture(fn_wake_ingestion_handler.device_id,
        fn_wake_ingestion_handler.image_name, taken_at);
    end if;
    image := public.fn_record_wake(session, fn_wake_ingestion_handler.device_id, taken_at, at,
      suspect, fn_wake_ingestion_handler.image_name, size, chunks, said);
  end if;
  perform public.fn_device_seen(fn_wake_ingestion_handler.device_id, at,
    public.fn_jsonb_number(said -> 'battery_voltage'),
    public.fn_jsonb_number(said -> 'wifi_rssi'));
  return public.fn_wake_answer(image);
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_wake_ingestion_handler(uuid, timestamptz, text, jsonb) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_wake_ingestion_handler(uuid, timestamptz, text, jsonb) from public;
grant execute on function fn_wake_ingestion_handler(uuid, timestamptz, text, jsonb)
  to farmiq_service;
