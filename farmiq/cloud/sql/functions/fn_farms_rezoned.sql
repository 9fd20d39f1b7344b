-- The days of a farm whose zone is new are computed again. Devices move between farms: every series of
-- the tenant may have days there.
create or replace function fn_farms_rezoned() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'UPDATE' and new.timezone = old.timezone then
    return null;
  end if;
  insert into public.telemetry_rezoned
  select l.tenant_id, l.device_id, l.metric_type from public.telemetry_latest l
  where l.tenant_id = coalesce(new.tenant_id, old.tenant_id)
  on conflict do nothing;
  return null;
end $$;
revoke execute on function fn_farms_rezoned() from public;
