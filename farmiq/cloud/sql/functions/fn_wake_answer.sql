-- What fn_wake_ingestion_handler says of the wake of an image, the first time and every other.
create or replace function fn_wake_answer(image_id uuid) returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('payload_id', p.payload_id, 'image_id', p.image_id,
    'session_id', p.site_device_session_id, 'wake_index', p.wake_window_index,
    'is_overage', p.overage_flag)
  from public.device_wake_payloads p where p.image_id = fn_wake_answer.image_id
$$;
grant create on schema public to farmiq_jobs;
alter function fn_wake_answer(uuid) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_wake_answer(uuid) from public;
