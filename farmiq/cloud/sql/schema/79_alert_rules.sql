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
