-- When a transaction ends, an image and its wake say the same, whoever wrote them: receiving is
-- pending. In between one is written before the other.
create or replace function fn_wake_agrees() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  differing record;
begin
  select i.status, p.payload_status into differing
  from public.device_images i join public.device_wake_payloads p on p.image_id = i.image_id
  where i.image_id = new.image_id
    and p.payload_status <> case i.status when 'receiving' then 'pending' else i.status end;
  if found then
    raise exception 'image % is % and its wake %: they say the same', new.image_id,
      differing.status, differing.payload_status using errcode = 'check_violation';
  end if;
  return null;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_wake_agrees() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_wake_agrees() from public;
