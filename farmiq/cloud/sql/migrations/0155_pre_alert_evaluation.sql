-- What evaluates alert rules needs: how far it looked, what is late, maintenance, who did what.
alter table alert_episodes add column signal text;
alter table alert_episodes add column is_absence boolean not null default false;

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

-- Values that came after later ones of their series: it is evaluated again from occurred_at on, once the
-- value and the newest one of the series are stored.
create table alert_rechecks (
  tenant_id text not null,
  signal text not null,
  subject text not null,
  event_id uuid not null,
  occurred_at timestamptz not null,
  attempts integer not null default 0,
  due_at timestamptz not null default now() + interval '1 second',
  received_at timestamptz not null default now(),
  constraint alert_rechecks_pkey primary key (tenant_id, signal, subject, event_id)
);
create index alert_rechecks_due_at_idx on alert_rechecks (due_at);
create index alert_rechecks_received_at_idx on alert_rechecks (received_at);

alter table alert_rechecks enable row level security;
alter table alert_rechecks force row level security;
create policy "Users see in their company" on alert_rechecks for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_rechecks_service on alert_rechecks for all to farmiq_service
  using (true) with check (true);
grant select on alert_rechecks to authenticated;
grant select, insert, update, delete on alert_rechecks to farmiq_service;

-- Maintenance: from begin_at to end_at nobody is told of what is in the scope; all that is set must match.
create table alert_windows (
  tenant_id text not null constraint alert_windows_tenant_fkey references companies (tenant_id),
  window_id uuid not null,
  begin_at timestamptz not null,
  end_at timestamptz not null,
  reason text not null,
  made_by text not null,
  made_at timestamptz not null default now(),
  farm_id text,
  barn_id text,
  device_id text,
  edge_cluster_id text,
  rule_id text,
  constraint alert_windows_pkey primary key (tenant_id, window_id),
  constraint alert_windows_times check (end_at > begin_at)
);
create index alert_windows_end_at_idx on alert_windows (tenant_id, end_at desc, window_id);

alter table alert_windows enable row level security;
alter table alert_windows force row level security;
create policy "Users see in their company" on alert_windows for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_windows_service on alert_windows for all to farmiq_service
  using (true) with check (true);
grant select on alert_windows to authenticated;
grant select, insert, update, delete on alert_windows to farmiq_service;

-- Who acknowledged what, and who changed rules and all else about alerts. It is only ever added to.
create table alert_actions (
  action_id uuid constraint alert_actions_pkey primary key,
  at timestamptz not null,
  tenant_id text not null,
  actor text not null,
  action text not null,
  key text not null,
  detail jsonb
);
create index alert_actions_tenant_idx on alert_actions (tenant_id, at desc);

alter table alert_actions enable row level security;
alter table alert_actions force row level security;
create policy "Users see in their company" on alert_actions for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_actions_service on alert_actions for all to farmiq_service
  using (true) with check (true);
grant select on alert_actions to authenticated;
grant select, insert on alert_actions to farmiq_service;
