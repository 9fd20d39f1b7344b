-- Raw readings, partitioned by month. Months are made from the oldest day that is kept to two months
-- ahead, so the default partition holds only times that cannot be right; it ages by ingested_at.
-- The key has to contain the partition column (C-19); an id stands once because of ingress_dedupe.
create table telemetry_raw (
  id uuid not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  occurred_at timestamptz not null,
  metric_type text not null,
  metric_value double precision not null,
  unit text not null,
  ingested_at timestamptz not null default now(),
  clock_suspect boolean not null default false,
  constraint telemetry_raw_pkey primary key (id, occurred_at)
) partition by range (occurred_at);
create index telemetry_raw_device_idx on telemetry_raw (tenant_id, device_id, occurred_at desc);
create index telemetry_raw_tenant_idx on telemetry_raw (tenant_id, occurred_at desc);
create table telemetry_raw_default partition of telemetry_raw default;
create index telemetry_raw_default_ingested_idx on telemetry_raw_default (ingested_at);
grant select, insert, delete on telemetry_raw to farmiq_edge;
grant select, delete on telemetry_raw_default to farmiq_edge;
