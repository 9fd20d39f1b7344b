-- Pages that show the company's alerts are told that an episode or what people were told changed.
create or replace function fn_alerts_changed() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('alerts_changed', c.company_id::text)
  from public.companies c where c.tenant_id = new.tenant_id;
  return null;
end $$;
revoke execute on function fn_alerts_changed() from public;
