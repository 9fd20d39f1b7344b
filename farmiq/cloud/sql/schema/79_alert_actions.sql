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
