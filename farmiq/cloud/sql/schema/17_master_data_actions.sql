-- Who added, changed, removed or imported which master data, asked for which image again, or resolved
-- which alert of a camera. It is only ever added to. key is what
-- tells the row apart; detail is what was written, or what an import came to.
create table master_data_actions (
  action_id uuid constraint master_data_actions_pkey primary key,
  at timestamptz not null,
  actor text not null,
  action text not null constraint master_data_actions_action_known
    check (action in ('add', 'change', 'remove', 'import', 'resend', 'resolve')),
  tenant_id text not null,
  kind text not null,
  key text,
  detail jsonb
);
create index master_data_actions_tenant_idx on master_data_actions (tenant_id, at desc);

alter table master_data_actions enable row level security;
alter table master_data_actions force row level security;
create policy "Users see in their company" on master_data_actions for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy master_data_actions_service on master_data_actions for all to farmiq_service
  using (true) with check (true);
create policy master_data_actions_jobs on master_data_actions for insert to farmiq_jobs
  with check (true);
grant select on master_data_actions to authenticated;
grant select, insert on master_data_actions to farmiq_service;
grant insert (action_id, at, actor, action, tenant_id, kind, key, detail)
  on master_data_actions to farmiq_jobs;
