-- What looks of the clock found: totals of edges, feed, cameras, incomplete weigh sessions. A row is
-- a value from the first look that found it to the last one in a row that did, a day at most. Only
-- for trying rules: nothing is evaluated from it.
create table alert_values (
  tenant_id text not null,
  signal text not null,
  subject text not null,
  begin_at timestamptz not null,
  end_at timestamptz not null,
  value double precision not null,
  constraint alert_values_pkey primary key (tenant_id, signal, subject, begin_at)
) with (fillfactor = 70);
create index alert_values_begin_at_idx on alert_values (begin_at);

alter table alert_values enable row level security;
alter table alert_values force row level security;
create policy "Users see in their company" on alert_values for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_values_service on alert_values for all to farmiq_service
  using (true) with check (true);
grant select on alert_values to authenticated;
grant select, insert, update, delete on alert_values to farmiq_service;
