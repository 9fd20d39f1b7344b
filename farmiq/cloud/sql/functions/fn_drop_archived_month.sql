-- Drops a month's partition of telemetry_readings whose rows are all in files: 'dropped', 'missing', or
-- 'changed' if it does not hold just as many rows as the caller has found in files. Readings of that month
-- that come meanwhile wait for this, and go to the default partition; those of other months do not wait.
-- It belongs to the tables' owner: nobody else can drop a partition.
create or replace function fn_drop_archived_month(month date, archived bigint) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
as $$
declare
  partition_name text := 'telemetry_readings_' || to_char(month, 'YYYY_MM');
  found bigint;
begin
  if not exists (
    select from pg_inherits where inhrelid = to_regclass('public.' || partition_name)) then
    return 'missing';
  end if;
  execute format('lock table public.%I in share row exclusive mode', partition_name);
  execute format('select count(*) from public.%I', partition_name) into found;
  if found <> archived then
    return 'changed';
  end if;
  lock table public.telemetry_readings in access exclusive mode;
  execute format('drop table public.%I', partition_name);
  return 'dropped';
end $$;
revoke execute on function fn_drop_archived_month(date, bigint) from public;
grant execute on function fn_drop_archived_month(date, bigint) to farmiq_service;
