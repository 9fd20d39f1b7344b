-- How far the rules have looked at a series: its newest value, and the state of each rule for which
-- something is pending or open (farmiq.farm.alerts.evaluation.State, with the hash of the rule).
-- heard_at is when the newest value came here.
create table alert_states (
  tenant_id text not null,
  signal text not null,
  subject text not null,
  last_at timestamptz,
  last_value double precision,
  heard_at timestamptz not null default now(),
  states jsonb not null default '{}',
  constraint alert_states_pkey primary key (tenant_id, signal, subject)
) with (fillfactor = 70);

alter table alert_states enable row level security;
alter table alert_states force row level security;
create policy "Users see in their company" on alert_states for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_states_service on alert_states for all to farmiq_service
  using (true) with check (true);
grant select on alert_states to authenticated;
grant select, insert, update, delete on alert_states to farmiq_service;
