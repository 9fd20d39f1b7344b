-- The tenant of the active company: what the policies of the bus's tables compare with.
create or replace function get_active_tenant_id() returns text
language sql stable
set search_path = pg_catalog, public
as $$
  select c.tenant_id from public.companies c where c.company_id = public.get_active_company_id()
$$;
