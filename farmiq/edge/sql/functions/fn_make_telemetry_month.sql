-- Makes the month's partition if it is missing; true if it was made now.
-- Rows of that month that the default partition took meanwhile move into it first (C-19).
-- The table is locked first and whole, so nobody who inserts can be waited for crosswise; whoever
-- cannot have the lock soon gives up, because intake queues behind the one who waits.
create or replace function fn_make_telemetry_month(month date) returns boolean
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
  if exists (select from pg_inherits where inhrelid = to_regclass('public.' || partition_name)) then
    return false;
  end if;
  lock table public.telemetry_raw in share row exclusive mode;
  if exists (select from pg_inherits where inhrelid = to_regclass('public.' || partition_name)) then
    return false;
  end if;
  if to_regclass('public.' || partition_name) is null then
    execute format('create table public.%I (like public.telemetry_raw '
      'including defaults including constraints including indexes)', partition_name);
  end if;
  execute format(
    'with moved as (
       delete from public.telemetry_raw_default
       where occurred_at >= %L and occurred_at < %L returning *)
     insert into public.%I select * from moved on conflict do nothing',
    starts_at, ends_at, partition_name);
  execute format(
    'alter table public.telemetry_raw attach partition public.%I for values from (%L) to (%L)',
    partition_name, starts_at, ends_at);
  return true;
end $$;
revoke execute on function fn_make_telemetry_month(date) from public;
grant execute on function fn_make_telemetry_month(date) to farmiq_edge;
