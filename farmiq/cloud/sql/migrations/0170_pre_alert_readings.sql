-- Readings that alert rules have not looked at yet: a row for each company of a statement that stored new
-- ones, written in its transaction (fn_readings_for_alerts) and deleted in the one that evaluates them. A
-- row that cannot be evaluated waits until due_at. Readings with a suspect clock are no values for rules.
create table alert_readings (
  id bigint generated always as identity,
  tenant_id text not null,
  farms text[] not null,
  barns text[] not null,
  devices text[] not null,
  metrics text[] not null,
  units text[] not null,
  moments timestamptz[] not null,
  numbers double precision[] not null,
  stored_at timestamptz not null default now(),
  due_at timestamptz not null default now(),
  attempts integer not null default 0,
  constraint alert_readings_pkey primary key (tenant_id, id)
);
create index alert_readings_due_at_idx on alert_readings (due_at);
create index alert_readings_stored_at_idx on alert_readings (stored_at);

alter table alert_readings enable row level security;
alter table alert_readings force row level security;
create policy alert_readings_service on alert_readings for all to farmiq_service
  using (true) with check (true);
grant select, insert, update, delete on alert_readings to farmiq_service;

create trigger telemetry_readings_for_alerts after insert on telemetry_readings
  referencing new table as stored for each statement execute function fn_readings_for_alerts();
