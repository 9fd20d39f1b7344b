-- Figures of a batch by local date. A figure that was withdrawn has no value; its revision goes on,
-- so that each change has an event_id of its own (kpi.daily.updated).
create table kpi_daily (
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  batch_id text not null,
  kpi_date date not null,
  kpi_type text not null,
  value double precision,
  unit text not null,
  source_event_count bigint not null,
  expected_value double precision,
  difference double precision,
  revision bigint not null default 1,
  computed_at timestamptz not null default now(),
  constraint kpi_daily_pkey primary key (tenant_id, batch_id, kpi_date, kpi_type)
);
create index kpi_daily_date_idx on kpi_daily (tenant_id, kpi_date desc, batch_id, kpi_type);

alter table kpi_daily enable row level security;
alter table kpi_daily force row level security;
create policy "Users see in their company" on kpi_daily for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy kpi_daily_service on kpi_daily for all to farmiq_service
  using (true) with check (true);
grant select on kpi_daily to authenticated;
grant select, insert, update on kpi_daily to farmiq_service;
