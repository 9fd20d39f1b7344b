-- Makes the month's partition of telemetry_readings if it is missing; true if it was made now. Rows of
-- that month that the default partition took meanwhile move into it, in the same transaction. The table is
-- locked whole, so nobody who inserts can be waited for crosswise, and from readers too: one that was
-- planned without the new month and read after the move would see these rows in neither place (D-612).
-- Whoever cannot have the lock soon gives up, because intake queues behind the one who waits. It belongs
-- to the tables' owner: nobody else can make a partition.
create or replace function fn_make_telemetry_month(month date) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
as $$
declare
  first_day date := date_trunc('month', month);
  starts_at timestamptz := first_day::timestamp at time zone 'UTC';
  ends_at timestamptz := (first_day + interval '1 month')::timestamp at time zone 'UTC';
  partition_name text := 'telemetry_readings_' || to_char(first_day, 'YYYY_MM');
begin
  if to_regclass('public.' || partition_name) is not null then
    return false;
  end if;
  lock table public.telemetry_readings in access exclusive mode;
  if to_regclass('public.' || partition_name) is not null then
    return false;
  end if;
  execute format('create table public.%I (like public.telemetry_readings '
    'including defaults including constraints including indexes)', partition_name);
  execute format(
    'with moved as (
       delete from public.telemetry_readings_default
       where occurred_at >= %L and occurred_at < %L returning *)
     insert into public.%I select * from moved',
    starts_at, ends_at, partition_name);
  execute format('alter table public.%I enable row level security', partition_name);
  execute format('alter table public.%I force row level security', partition_name);
  execute format(
    'create policy "Users see in their company" on public.%I for select to authenticated
       using (tenant_id = (select public.get_active_tenant_id()))', partition_name);
  execute format(
    'create policy %I on public.%I for all to farmiq_service using (true) with check (true)',
    partition_name || '_service', partition_name);
  -- Its owner counts its rows before it is dropped (fn_drop_archived_month); FORCE holds for owners too.
  execute format('create policy %I on public.%I for select to current_user using (true)',
    partition_name || '_owner', partition_name);
  execute format(
    'alter table public.telemetry_readings attach partition public.%I for values from (%L) to (%L)',
    partition_name, starts_at, ends_at);
  return true;
end $$;
revoke execute on function fn_make_telemetry_month(date) from public;
grant execute on function fn_make_telemetry_month(date) to farmiq_service;
