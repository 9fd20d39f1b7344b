-- Makes the month's partition if it is missing; true if it was made now.
-- Rows of that month that the default partition took meanwhile move into it first (C-19). Rows that
-- fn_move_telemetry_month moved before could not be seen: buckets made meanwhile lack them, so their
-- hours are marked in the very transaction that shows them again (D-83). For the cloud's sake every
-- metric that was ever set counts as owed. Series that telemetry_latest does not have get no buckets.
-- The table is locked whole, so nobody who inserts can be waited for crosswise, and from readers too:
-- one that was planned without the new month and read after the move would see its rows in neither
-- place (D-612). Whoever cannot have the lock soon gives up, because intake queues behind the one who
-- waits.
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
  -- Nobody moves rows out of sight between the marks and the attachment.
  perform pg_advisory_xact_lock(hashtextextended('telemetry month', 0));
  if to_regclass('public.' || partition_name) is not null then
    -- Before the lock: intake need not wait for this. A mark names a bounded number of hours.
    execute format(
      'insert into public.telemetry_dirty (marked_at, first_at, tenants, devices, metrics,
         first_minutes, last_minutes, owed_metrics)
       select public.fn_now(), to_timestamp(min(h.first) * 60), array_agg(h.tenant_id),
         array_agg(h.device_id), array_agg(h.metric_type), array_agg(h.first), array_agg(h.last),
         (select coalesce(array_agg(s.metric_type), ''{}'') from public.metric_settings s)
       from (
         select tenant_id, device_id, metric_type,
           min(floor(extract(epoch from occurred_at) / 60))::bigint as first,
           max(floor(extract(epoch from occurred_at) / 60))::bigint as last,
           row_number() over (order by tenant_id, device_id, metric_type) as number
         from public.%I
         group by tenant_id, device_id, metric_type, date_bin(''1 hour'', occurred_at, ''epoch'')) h
         join public.telemetry_latest l using (tenant_id, device_id, metric_type)
       group by h.number / 500',
      partition_name);
  end if;
  lock table public.telemetry_raw in access exclusive mode;
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
