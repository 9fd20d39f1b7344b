-- The date at a farm at a moment, in the farm's zone; null for a farm that is not registered. The
-- zone is stored under the name by which PostgreSQL means it (fn_sites_timezone).
create or replace function fn_farm_date(tenant text, farm text, at timestamptz) returns date
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select (fn_farm_date.at at time zone f.timezone)::date from public.farms f
  where f.tenant_id = fn_farm_date.tenant and f.farm_id = fn_farm_date.farm
$$;
revoke execute on function fn_farm_date(text, text, timestamptz) from public;
grant execute on function fn_farm_date(text, text, timestamptz) to authenticated, farmiq_service;
