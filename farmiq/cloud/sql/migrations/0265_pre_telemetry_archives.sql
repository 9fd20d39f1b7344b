-- Readings that left telemetry_readings: a Parquet file in the cloud's bucket each, of one company, metric
-- and month, sorted by device and time. A row is written after the file was read back and compared. Until
-- dropped_at the readings are in the table too; whoever reads both takes an event once (D-590).
create table telemetry_archives (
  tenant_id text not null,
  key text not null,
  metric_type text not null,
  month date not null,
  first_device_id text not null,
  last_device_id text not null,
  first_at timestamptz not null,
  last_at timestamptz not null,
  row_count bigint not null constraint telemetry_archives_row_count_positive check (row_count > 0),
  size_bytes bigint not null,
  sha256 text not null,
  stored_at timestamptz not null default clock_timestamp(),
  dropped_at timestamptz,
  constraint telemetry_archives_pkey primary key (tenant_id, key)
);
create index telemetry_archives_metric_idx on telemetry_archives (tenant_id, metric_type, month);
create index telemetry_archives_month_idx on telemetry_archives (month);

alter table telemetry_archives enable row level security;
alter table telemetry_archives force row level security;
create policy "Users see in their company" on telemetry_archives for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy telemetry_archives_service on telemetry_archives for all to farmiq_service
  using (true) with check (true);
grant select on telemetry_archives to authenticated;
grant select, insert, update, delete on telemetry_archives to farmiq_service;

-- additive: the owner may count the rows of months that are there already, as of those made from now on.
do $$
declare
  partition_name name;
begin
  for partition_name in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'telemetry_readings'::regclass and c.relname ~ '_[0-9]{4}_[0-9]{2}$'
  loop
    execute format('create policy %I on %I for select to current_user using (true)',
      partition_name || '_owner', partition_name);
  end loop;
end $$;
