-- Somebody asks for exactly this image again, if they do more in their company than look; the gateway
-- sends for it when its camera wakes. The refusal does not tell whether another company has such an image.
create or replace function fn_request_resend(image_id uuid) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  asked_by uuid;
begin
  asked_by := public.fn_acting_person(array['operator', 'technician', 'admin'],
    'only operators, technicians and admins ask for images again');
  if not exists (
    select from public.device_images i
    where i.image_id = fn_request_resend.image_id
      and i.company_id = public.get_active_company_id()) then
    raise exception 'your company has no image %', fn_request_resend.image_id
      using errcode = 'no_data_found';
  end if;
  insert into public.master_data_actions
    (action_id, at, actor, action, tenant_id, kind, key, detail)
  select public.fn_uuid_v7(), public.fn_now(), u.email, 'resend', c.tenant_id, 'device_images',
    i.image_name, jsonb_build_object('image_id', i.image_id)
  from public.device_images i join public.companies c using (company_id), public.users u
  where i.image_id = fn_request_resend.image_id and i.status <> 'complete'
    and u.user_id = asked_by;
  return public.fn_retry_image(image_id => fn_request_resend.image_id, new_image_url => null);
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_request_resend(uuid) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_request_resend(uuid) from public;
grant execute on function fn_request_resend(uuid) to authenticated;
