-- Key figures of a day, as announced on the bus.
create table kpi_events (
  tenant_id text not null,
  event_id uuid not null,
  event_type text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text,
  session_id uuid,
  occurred_at timestamptz not null,
  trace_id text not null,
  payload jsonb not null,
  stored_at timestamptz not null default clock_timestamp(),
  kpi_date date generated always as (
    make_date(
      split_part(payload ->> 'kpi_date', '-', 1)::integer,
      split_part(payload ->> 'kpi_date', '-', 2)::integer,
      split_part(payload ->> 'kpi_date', '-', 3)::integer)) stored,
  kpi_type text generated always as (payload ->> 'kpi_type') stored,
  value double precision generated always as ((payload ->> 'value')::double precision) stored,
  unit text generated always as (payload ->> 'unit') stored,
  source_event_count bigint generated always as (
    (payload ->> 'source_event_count')::numeric::bigint) stored,
  clock_suspect boolean not null default false,
  constraint kpi_events_pkey primary key (tenant_id, event_id)
);
create index kpi_events_occurred_at_idx on kpi_events (tenant_id, occurred_at desc);

alter table kpi_events enable row level security;
alter table kpi_events force row level security;
create policy "Users see in their company" on kpi_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy kpi_events_service on kpi_events for all to farmiq_service
  using (true) with check (true);
grant select on kpi_events to authenticated;
grant select, insert on kpi_events to farmiq_service;
