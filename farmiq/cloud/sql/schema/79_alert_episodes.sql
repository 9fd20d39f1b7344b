-- One row per time that something was wrong: at most one of a cause is open. A cause is a rule and
-- its subject, an edge's alert, or a camera's. opened_at and resolved_at are the event's own time,
-- raised_at is when it came here; paged_at is when people were told of it first, if they were.
-- held_by: an open episode or a maintenance window because of which nobody is told.
-- withdrawn: later data showed that it never was. signal: what its rule looks at, if a rule made it;
-- is_absence: because nothing came. ended_reason: why it is over if not because the values say so;
-- ended_by and ended_note: who ended it by hand. is_open_at_edge: the edge still has what a person ended.
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
  signal text,
  is_absence boolean not null default false,
  ended_reason text constraint alert_episodes_ended_reason_known check (ended_reason in (
    'person', 'rule', 'edge', 'moved', 'revoked', 'batch', 'camera', 'long')),
  ended_by text,
  ended_note text,
  is_open_at_edge boolean not null default false,
  constraint alert_episodes_pkey primary key (tenant_id, episode_id),
  constraint alert_episodes_times check (resolved_at is null or resolved_at >= opened_at)
);
create unique index alert_episodes_open_key on alert_episodes (tenant_id, cause)
  where state in ('active', 'acknowledged');
create index alert_episodes_cause_idx on alert_episodes (tenant_id, cause, opened_at desc);
-- Those that an edge had open at a moment: its heartbeat says how many there should be.
create index alert_episodes_edge_idx on alert_episodes
  (tenant_id, edge_cluster_id, coalesce(resolved_at, 'infinity'::timestamptz))
  where source = 'edge';
create index alert_episodes_opened_at_idx on alert_episodes (tenant_id, opened_at desc, episode_id);
-- Nobody was told of these yet.
create index alert_episodes_unpaged_idx on alert_episodes (last_at)
  where state = 'active' and paged_at is null;
create index alert_episodes_ended_idx on alert_episodes (resolved_at)
  where state in ('resolved', 'withdrawn');
-- What people ended: edges ask each minute what of it is still bad.
create index alert_episodes_by_person_idx on alert_episodes (tenant_id, resolved_at)
  where ended_reason = 'person';
create trigger alert_episodes_opened after insert on alert_episodes
  for each row execute function fn_alerts_changed();
create trigger alert_episodes_changed after update on alert_episodes
  for each row when (
    (old.state, old.severity, old.paged_at, old.held_by, old.opened_at, old.resolved_at)
    is distinct from
    (new.state, new.severity, new.paged_at, new.held_by, new.opened_at, new.resolved_at))
  execute function fn_alerts_changed();

alter table alert_episodes enable row level security;
alter table alert_episodes force row level security;
create policy "Users see in their company" on alert_episodes for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_episodes_service on alert_episodes for all to farmiq_service
  using (true) with check (true);
grant select on alert_episodes to authenticated;
grant select, insert, update, delete on alert_episodes to farmiq_service;
