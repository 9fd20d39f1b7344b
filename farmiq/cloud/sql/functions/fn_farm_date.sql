-- The date at a farm at a moment, in the farm's zone; null for a farm that is not registered.
create or replace function fn_farm_date(tenant text, farm text, at timestamptz) returns date
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select public.fn_local_date(f.timezone, fn_farm_date.at) from public.farms f
  where f.tenant_id = fn_farm_date.tenant and f.farm_id = fn_farm_date.farm
$$;
revoke execute on function fn_farm_date(text, text, timestamptz) from public;
grant execute on function fn_farm_date(text, text, timestamptz) to authenticated, farmiq_service;
