alter table alerts
  add column whole_edge boolean not null default false,
  add column reported_to text[] not null default '{}',
  add column reported_severity text;

create table cloud_tenants (
  tenant_id text constraint cloud_tenants_pkey primary key,
  edge_cluster_id text not null
);
grant select, insert, update on cloud_tenants to farmiq_edge;
