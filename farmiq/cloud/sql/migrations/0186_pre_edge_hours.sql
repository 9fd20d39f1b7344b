-- What came from each edge in each hour (UTC): events, how many of them were known already, and the
-- worst that its heartbeats said in that hour. An hour without a row: nothing was heard.
create table edge_hours (
  tenant_id text not null,
  edge_cluster_id text not null,
  hour timestamptz not null,
  events bigint not null default 0,
  duplicates bigint not null default 0,
  heartbeats bigint not null default 0,
  max_waiting bigint,
  max_oldest_s double precision,
  max_disk_percent double precision,
  max_clock_offset_s double precision,
  constraint edge_hours_pkey primary key (tenant_id, edge_cluster_id, hour)
);

alter table edge_hours enable row level security;
alter table edge_hours force row level security;
create policy "Users see in their company" on edge_hours for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy edge_hours_service on edge_hours for all to farmiq_service
  using (true) with check (true);
grant select on edge_hours to authenticated;
grant select, insert, update, delete on edge_hours to farmiq_service;
