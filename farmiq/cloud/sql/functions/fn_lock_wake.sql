-- The session of an image's wake; until the transaction ends nobody else changes that session's
-- counters or that image. Whoever changes a wake comes here first, so that all wait in one order:
-- session, image, payload, alert. Whoever holds one of these may still refer to a camera, its site or
-- program, whose rows others change meanwhile: no key of those ever changes, a name is none.
create or replace function fn_lock_wake(image_id uuid) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  held uuid;
begin
  select s.session_id into held
  from public.device_wake_payloads p
  join public.site_device_sessions s on s.session_id = p.site_device_session_id
  where p.image_id = fn_lock_wake.image_id
  for no key update of s;
  if held is null then
    raise exception 'no wake has an image %: send its metadata first', fn_lock_wake.image_id
      using errcode = 'FQ003';
  end if;
  perform from public.device_images i where i.image_id = fn_lock_wake.image_id for no key update;
  return held;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_lock_wake(uuid) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_lock_wake(uuid) from public;
