-- Moves a portion of a month's rows out of the default partition, before the month is attached, if
-- there are more of them than `most`; returns how many moved. The rest moves with the attachment:
-- intake waits for at most that many. Until then moved rows cannot be seen; fn_make_telemetry_month
-- marks their hours.
create or replace function fn_move_telemetry_month(month date, most int) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  first_day date := date_trunc('month', month);
  starts_at timestamptz := first_day::timestamp at time zone 'UTC';
  ends_at timestamptz := (first_day + interval '1 month')::timestamp at time zone 'UTC';
  partition_name text := 'telemetry_raw_' || to_char(first_day, 'YYYY_MM');
  waiting int;
begin
  perform pg_advisory_xact_lock(hashtextextended('telemetry month', 0));
  if exists (select from pg_inherits where inhrelid = to_regclass('public.' || partition_name)) then
    return 0;
  end if;
  select count(*) into waiting from (
    select from public.telemetry_raw_default
    where occurred_at >= starts_at and occurred_at < ends_at limit most + 1) few;
  if waiting <= most then
    return 0;
  end if;
  if to_regclass('public.' || partition_name) is null then
    execute format('create table public.%I (like public.telemetry_raw '
      'including defaults including constraints including indexes)', partition_name);
  end if;
  execute format(
    'with portion as (
       select id, occurred_at from public.telemetry_raw_default
       where occurred_at >= %L and occurred_at < %L limit %s),
     moved as (
       delete from public.telemetry_raw_default d using portion
       where d.id = portion.id and d.occurred_at = portion.occurred_at returning d.*)
     insert into public.%I select * from moved on conflict do nothing',
    starts_at, ends_at, most, partition_name);
  return most;
end $$;
revoke execute on function fn_move_telemetry_month(date, int) from public;
grant execute on function fn_move_telemetry_month(date, int) to farmiq_edge;
