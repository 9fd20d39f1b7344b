-- Who invited, enrolled, rotated or revoked which edge, or gave it a further tenant (grant). It is
-- only ever added to.
create table edge_actions (
  action_id uuid constraint edge_actions_pkey primary key,
  at timestamptz not null,
  actor text not null,
  action text not null constraint edge_actions_action_known
    check (action in ('invite', 'enroll', 'rotate', 'revoke', 'grant')),
  tenant_id text not null,
  edge_cluster_id text not null,
  key_id text
);
create index edge_actions_tenant_idx on edge_actions (tenant_id, at desc);

alter table edge_actions enable row level security;
alter table edge_actions force row level security;
create policy "Users see in their company" on edge_actions for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy edge_actions_owner on edge_actions for all to current_user
  using (true) with check (true);
create policy edge_actions_service on edge_actions for all to farmiq_service
  using (true) with check (true);
grant select on edge_actions to authenticated;
grant select, insert on edge_actions to farmiq_service;
