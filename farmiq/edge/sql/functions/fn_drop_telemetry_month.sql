-- Drops a month's partition: 'dropped', 'missing', or why not: 'needed' (a bucket may still have to
-- be made from it: telemetry_state.raw_from is earlier) or 'unsynced' (C-42). It looks before it
-- locks, so a refusal disturbs nobody, and again under the lock, when nobody can add to it.
create or replace function fn_drop_telemetry_month(month date) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
as $$
declare
  first_day date := date_trunc('month', month);
  starts_at timestamptz := first_day::timestamp at time zone 'UTC';
  ends_at timestamptz := (first_day + interval '1 month')::timestamp at time zone 'UTC';
  partition_name text := 'telemetry_raw_' || to_char(first_day, 'YYYY_MM');
begin
  for look in 1..2 loop
    if not exists (
      select from pg_inherits where inhrelid = to_regclass('public.' || partition_name)) then
      return 'missing';
    elsif not exists (select from public.telemetry_state s where s.raw_from >= ends_at) then
      return 'needed';
    elsif public.fn_telemetry_unsynced(starts_at, ends_at) then
      return 'unsynced';
    elsif look = 1 then
      lock table public.telemetry_raw in access exclusive mode;
    end if;
  end loop;
  execute format('drop table public.%I', partition_name);
  return 'dropped';
end $$;
revoke execute on function fn_drop_telemetry_month(date) from public;
grant execute on function fn_drop_telemetry_month(date) to farmiq_edge;
