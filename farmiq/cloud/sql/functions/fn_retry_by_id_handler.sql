-- A camera's image of this name is tried again: the newest that is not complete, else the newest
-- (C-59). One nobody announced is not found: it comes as a new wake (C-65).
create or replace function fn_retry_by_id_handler(
  device_id uuid, image_name text, new_image_url text)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  named uuid;
begin
  perform public.fn_check_image_name(fn_retry_by_id_handler.image_name);
  select i.image_id into named
  from public.device_images i
  join public.device_wake_payloads p on p.image_id = i.image_id
  where i.device_id = fn_retry_by_id_handler.device_id
    and i.image_name = fn_retry_by_id_handler.image_name
  -- A clock that is not believed says nothing about which is newer.
  order by i.status = 'complete',
    case when p.clock_suspect then i.created_at else i.captured_at end desc, i.image_id desc
  limit 1;
  if named is null then
    return jsonb_build_object('found', false, 'was_failed', false, 'is_complete', false,
      'retry_count', 0, 'original_captured_at', null);
  end if;
  return public.fn_retry_image(
    image_id => named, new_image_url => fn_retry_by_id_handler.new_image_url);
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_retry_by_id_handler(uuid, text, text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_retry_by_id_handler(uuid, text, text) from public;
grant execute on function fn_retry_by_id_handler(uuid, text, text) to farmiq_service;
