-- Notes the readings that a statement stored for cloud-alerts-service, in the same transaction: whoever
-- stores a reading, rules look at it once, and nobody reads it from the bus a second time (D-471).
create or replace function fn_readings_for_alerts() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into public.alert_readings (tenant_id, farms, barns, devices, metrics, units, moments, numbers)
  select s.tenant_id, array_agg(s.farm_id), array_agg(s.barn_id), array_agg(s.device_id),
    array_agg(s.metric_type), array_agg(s.unit), array_agg(s.occurred_at), array_agg(s.metric_value)
  from stored s where not s.clock_suspect
  group by s.tenant_id;
  return null;
end $$;
revoke execute on function fn_readings_for_alerts() from public;
