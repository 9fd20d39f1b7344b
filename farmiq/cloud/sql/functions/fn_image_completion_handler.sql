-- All of an image is stored at image_url (FN-06, fn_complete_images).
create or replace function fn_image_completion_handler(image_id uuid, image_url text)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(fn_image_completion_handler.image_url, '') = '' then
    raise exception 'image % is complete only where it is stored: say its image_url',
      fn_image_completion_handler.image_id using errcode = 'invalid_parameter_value';
  end if;
  perform public.fn_complete_images(
    array[fn_image_completion_handler.image_id], array[fn_image_completion_handler.image_url]);
  return (
    select jsonb_build_object('observation_id', o.observation_id, 'payload_id', o.payload_id,
      'session_id', o.site_device_session_id, 'slot_index', o.slot_index)
    from public.petri_observations o
    where o.image_id = fn_image_completion_handler.image_id);
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_image_completion_handler(uuid, text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_image_completion_handler(uuid, text) from public;
grant execute on function fn_image_completion_handler(uuid, text) to farmiq_service;
