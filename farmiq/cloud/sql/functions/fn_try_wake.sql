-- fn_wake_ingestion_handler for one of many announcements in a statement: what is wrong with it is a
-- row of the result and undoes only itself. image_id may not be one of contradicted, the open images
-- that the gateway knows with another content (FQ003).
create or replace function fn_try_wake(
  device_id uuid, captured_at timestamptz, image_name text, telemetry_data jsonb,
  contradicted uuid[], out image_id uuid, out problem text, out message text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  image_id := (public.fn_wake_ingestion_handler(device_id => fn_try_wake.device_id,
    captured_at => fn_try_wake.captured_at, image_name => fn_try_wake.image_name,
    telemetry_data => fn_try_wake.telemetry_data) ->> 'image_id')::uuid;
  if image_id = any(contradicted) then
    raise exception 'contradicts the announcement of an open image' using errcode = 'FQ003';
  end if;
exception
  -- Errors about the camera or the data; any other ends the transaction.
  when sqlstate 'FQ001' or sqlstate 'FQ002' or sqlstate 'FQ003' or data_exception
    or integrity_constraint_violation or program_limit_exceeded
  then
    problem := sqlstate;
    message := sqlerrm;
end $$;
revoke execute on function fn_try_wake(uuid, timestamptz, text, jsonb, uuid[]) from public;
grant execute on function fn_try_wake(uuid, timestamptz, text, jsonb, uuid[]) to farmiq_service;
