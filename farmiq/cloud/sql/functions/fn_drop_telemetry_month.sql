-- Drops a month's partition of telemetry_readings: 'dropped', 'missing', or 'needed' if a bucket may still
-- have to be computed from it (telemetry_state.raw_from is earlier). It belongs to the tables' owner:
-- nobody else can drop a partition.
create or replace function fn_drop_telemetry_month(month date) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
as $$
declare
  first_day date := date_trunc('month', month);
  ends_at timestamptz := (first_day + interval '1 month')::timestamp at time zone 'UTC';
  partition_name text := 'telemetry_readings_' || to_char(first_day, 'YYYY_MM');
begin
  if not exists (
    select from pg_inherits where inhrelid = to_regclass('public.' || partition_name)) then
    return 'missing';
  elsif not exists (select from public.telemetry_state s where s.raw_from >= ends_at) then
    return 'needed';
  end if;
  lock table public.telemetry_readings in access exclusive mode;
  execute format('drop table if exists public.%I', partition_name);
  return 'dropped';
end $$;
revoke execute on function fn_drop_telemetry_month(date) from public;
grant execute on function fn_drop_telemetry_month(date) to farmiq_service;
