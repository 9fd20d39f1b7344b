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
