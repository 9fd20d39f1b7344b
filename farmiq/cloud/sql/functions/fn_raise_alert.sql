-- Opens an alert about a camera, or about a site if no camera is named; true if it is new. As long
-- as one of the same type and date is open, that one stays as it is (C-74).
create or replace function fn_raise_alert(
  company_id uuid, alert_type text, alert_date date, message text, device_id uuid default null,
  site_id uuid default null, session_id uuid default null, image_id uuid default null,
  details jsonb default '{}')
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into public.device_alerts (alert_id, company_id, site_id, device_id, session_id, image_id,
    alert_type, alert_date, message, details, created_at)
  values (public.fn_uuid_v7(), fn_raise_alert.company_id, fn_raise_alert.site_id,
    fn_raise_alert.device_id, fn_raise_alert.session_id, fn_raise_alert.image_id,
    fn_raise_alert.alert_type, fn_raise_alert.alert_date, fn_raise_alert.message,
    coalesce(fn_raise_alert.details, '{}'), public.fn_now())
  on conflict do nothing;
  return found;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_raise_alert(uuid, text, date, text, uuid, uuid, uuid, uuid, jsonb) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_raise_alert(uuid, text, date, text, uuid, uuid, uuid, uuid, jsonb) from public;
grant execute on function fn_raise_alert(uuid, text, date, text, uuid, uuid, uuid, uuid, jsonb)
  to farmiq_service;
