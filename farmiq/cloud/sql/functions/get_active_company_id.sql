-- The company whose rows this transaction may see; null (no rows) when none was set.
create or replace function get_active_company_id() returns uuid
language sql stable
set search_path = pg_catalog
as $$
  select nullif(current_setting('farmiq.company_id', true), '')::uuid
$$;
