-- An image is stored: something is to be inferred from it, of its session or of itself. An image that
-- turns out to belong to a session is not looked at by itself any more, unless that is done already.
create or replace function fn_infer_stored() returns trigger
language plpgsql as $$
begin
  if new.session_id is null then
    insert into inference_jobs (id, tenant_id, farm_id, barn_id, device_id, media_id, created_at,
      last_image_at, next_attempt_at)
    values (fn_uuid_v7(), new.tenant_id, new.farm_id, new.barn_id, new.device_id, new.id, fn_now(),
      fn_now(), fn_now())
    on conflict on constraint inference_jobs_media_key do nothing;
    return null;
  end if;
  insert into inference_jobs as j (id, tenant_id, farm_id, barn_id, device_id, session_id,
    created_at, last_image_at, next_attempt_at)
  values (fn_uuid_v7(), new.tenant_id, new.farm_id, new.barn_id, new.device_id, new.session_id,
    fn_now(), fn_now(), fn_now())
  on conflict on constraint inference_jobs_session_key do update set
    image_count = j.image_count + 1, last_image_at = excluded.last_image_at;
  delete from inference_jobs where media_id = new.id and done_at is null;
  return null;
end $$;
