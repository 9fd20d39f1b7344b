-- Makes the month's partition if it is missing; true if it was made now.
create or replace function fn_make_telemetry_month(month date) returns boolean
language plpgsql security definer
set search_path = pg_catalog, public
as $$
declare
  first_day date := date_trunc('month', month);
  partition_name text := 'telemetry_raw_' || to_char(first_day, 'YYYY_MM');
begin
  if to_regclass('public.' || partition_name) is not null then
    return false;
  end if;
  execute format(
    'create table public.%I partition of public.telemetry_raw for values from (%L) to (%L)',
    partition_name,
    first_day::timestamp at time zone 'UTC',
    (first_day + interval '1 month')::timestamp at time zone 'UTC');
  return true;
end $$;
revoke execute on function fn_make_telemetry_month(date) from public;
grant execute on function fn_make_telemetry_month(date) to farmiq_edge;
