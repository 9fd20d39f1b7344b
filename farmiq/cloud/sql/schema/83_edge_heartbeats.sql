-- What each edge last said of itself, for each tenant that it speaks for.
-- clock_offset_s is how far its clock is ahead of ours, the way included. Totals and farms are null
-- from an edge that sends none. open_alerts: those that this tenant was told of.
create table edge_heartbeats (
  tenant_id text not null,
  edge_cluster_id text not null,
  received_at timestamptz not null,
  sent_at timestamptz not null,
  clock_offset_s double precision not null,
  versions jsonb not null,
  waiting bigint not null,
  oldest_s double precision not null,
  dlq bigint not null,
  disk_percent double precision not null,
  open_alerts bigint,
  quarantine bigint,
  dead_letters bigint,
  losses bigint,
  farms text[],
  constraint edge_heartbeats_pkey primary key (tenant_id, edge_cluster_id)
);

alter table edge_heartbeats enable row level security;
alter table edge_heartbeats force row level security;
create policy "Users see in their company" on edge_heartbeats for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy edge_heartbeats_owner on edge_heartbeats for all to current_user
  using (true) with check (true);
create policy edge_heartbeats_service on edge_heartbeats for all to farmiq_service
  using (true) with check (true);
grant select on edge_heartbeats to authenticated;
grant select, insert, update on edge_heartbeats to farmiq_service;
