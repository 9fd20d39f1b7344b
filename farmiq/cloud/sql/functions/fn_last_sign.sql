-- When something of an image was last heard, or is to be done by the gateway (C-68): its metadata, a
-- chunk, the next round. A gateway that works never lets what is due lie, so an image that it still
-- asks for or stores is not given up behind its back; one whose gateway is gone is, a little later.
create or replace function fn_last_sign(image_id uuid) returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select greatest(i.created_at, i.announced_at, t.heard_at,
    case when t.state = 'receiving' then t.due_at end)
  from public.device_images i
  left join public.camera_transfers t on t.image_id = i.image_id
  where i.image_id = fn_last_sign.image_id
$$;
revoke execute on function fn_last_sign(uuid) from public;
grant execute on function fn_last_sign(uuid) to farmiq_jobs;
