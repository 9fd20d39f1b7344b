-- A company that names no tenant is its own: tenant_id defaults to its id (C-52).
create or replace function fn_companies_tenant_id() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  new.tenant_id := coalesce(new.tenant_id, new.company_id::text);
  return new;
end $$;
