-- The tenant of the active company: what the policies of the bus's tables compare with.
create or replace function get_active_tenant_id() returns text
language sql stable security definer parallel safe
cost 1000
set search_path = pg_catalog, pg_temp
as $$
  select c.tenant_id from public.companies c
  where c.company_id = (select public.get_active_company_id())
$$;
grant create on schema public to farmiq_jobs;
alter function get_active_tenant_id() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function get_active_tenant_id() from public;
grant execute on function get_active_tenant_id() to authenticated, farmiq_service;
