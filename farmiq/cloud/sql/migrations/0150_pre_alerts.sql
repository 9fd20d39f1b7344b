-- What a company wants to be told: its own rules, and its changes of those that ship (same rule_id).
-- The rule itself is farmiq.farm.alerts.rules.Rule; `revision` grows by each change.
create table alert_rules (
  tenant_id text not null constraint alert_rules_tenant_fkey references companies (tenant_id),
  rule_id text not null constraint alert_rules_rule_id_length check (length(rule_id) <= 128),
  rule jsonb not null,
  revision bigint not null default 1,
  changed_at timestamptz not null default now(),
  changed_by text not null,
  constraint alert_rules_pkey primary key (tenant_id, rule_id)
);

alter table alert_rules enable row level security;
alter table alert_rules force row level security;
create policy "Users see in their company" on alert_rules for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_rules_service on alert_rules for all to farmiq_service
  using (true) with check (true);
grant select on alert_rules to authenticated;
grant select, insert, update, delete on alert_rules to farmiq_service;
-- One row per time that something was wrong: at most one of a cause is open. A cause is a rule and
-- its subject, an edge's alert, or a camera's. opened_at and resolved_at are the event's own time,
-- raised_at is when it came here; paged_at is when people were told of it first, if they were.
-- held_by: an open episode or a maintenance window because of which nobody is told.
create table alert_episodes (
  tenant_id text not null constraint alert_episodes_tenant_fkey references companies (tenant_id),
  episode_id uuid not null,
  cause text not null,
  source text not null constraint alert_episodes_source_known
    check (source in ('rule', 'edge', 'camera', 'cloud')),
  rule_id text,
  severity text not null constraint alert_episodes_severity_known
    check (severity in ('info', 'warning', 'critical', 'security')),
  subject text not null,
  farm_id text,
  barn_id text,
  device_id text,
  edge_cluster_id text,
  batch_id text,
  message text not null,
  state text not null default 'active' constraint alert_episodes_state_known
    check (state in ('active', 'acknowledged', 'resolved', 'withdrawn')),
  opened_at timestamptz not null,
  last_at timestamptz not null,
  resolved_at timestamptz,
  raised_at timestamptz not null default now(),
  paged_at timestamptz,
  seen_count bigint not null default 1,
  first_value double precision,
  worst_value double precision,
  last_value double precision,
  held_by text,
  acknowledged_at timestamptz,
  acknowledged_by text,
  note text,
  constraint alert_episodes_pkey primary key (tenant_id, episode_id),
  constraint alert_episodes_times check (resolved_at is null or resolved_at >= opened_at)
);
create unique index alert_episodes_open_key on alert_episodes (tenant_id, cause)
  where state in ('active', 'acknowledged');
create index alert_episodes_cause_idx on alert_episodes (tenant_id, cause, opened_at desc);
create index alert_episodes_opened_at_idx on alert_episodes (tenant_id, opened_at desc, episode_id);

alter table alert_episodes enable row level security;
alter table alert_episodes force row level security;
create policy "Users see in their company" on alert_episodes for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_episodes_service on alert_episodes for all to farmiq_service
  using (true) with check (true);
grant select on alert_episodes to authenticated;
grant select, insert, update, delete on alert_episodes to farmiq_service;
-- What people are to be told of an episode, once per step; written with the change that it tells of.
-- routed_at: cloud-notification-service has made the messages of it.
create table alert_steps (
  tenant_id text not null,
  episode_id uuid not null,
  step text not null constraint alert_steps_step_known
    check (step in ('opened', 'worsened', 'escalated', 'acknowledged', 'resolved')),
  created_at timestamptz not null default now(),
  routed_at timestamptz,
  constraint alert_steps_pkey primary key (tenant_id, episode_id, step),
  constraint alert_steps_episode_fkey foreign key (tenant_id, episode_id)
    references alert_episodes (tenant_id, episode_id) on delete cascade
);
create index alert_steps_pending_idx on alert_steps (created_at) where routed_at is null;

alter table alert_steps enable row level security;
alter table alert_steps force row level security;
create policy "Users see in their company" on alert_steps for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_steps_service on alert_steps for all to farmiq_service
  using (true) with check (true);
grant select on alert_steps to authenticated;
grant select, insert, update on alert_steps to farmiq_service;
