-- Raw readings, partitioned by month; the default partition takes what no month is made for.
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
grant select, insert on telemetry_raw to farmiq_edge;
