-- An image keeps its name and the time the camera took it; once complete it stays complete.
create or replace function fn_device_images_guard() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' then
    raise exception 'image % cannot be deleted: a wake keeps its image', old.image_id
      using errcode = 'restrict_violation';
  end if;
  if (old.status, new.status) not in (
    ('receiving', 'receiving'), ('receiving', 'complete'), ('receiving', 'failed'),
    ('failed', 'failed'), ('failed', 'complete'), ('complete', 'complete')) then
    raise exception 'image % cannot go from % to %', old.image_id, old.status, new.status
      using errcode = 'check_violation';
  end if;
  if (new.image_id, new.company_id, new.device_id, new.image_name, new.captured_at,
      new.original_capture_date, new.created_at) is distinct from
     (old.image_id, old.company_id, old.device_id, old.image_name, old.captured_at,
      old.original_capture_date, old.created_at)
    or (old.observation_id is not null and new.observation_id is distinct from old.observation_id)
    or new.retry_count < old.retry_count then
    raise exception 'image % keeps its name, its capture and its observation', old.image_id
      using errcode = 'check_violation';
  end if;
  return new;
end $$;
revoke execute on function fn_device_images_guard() from public;
