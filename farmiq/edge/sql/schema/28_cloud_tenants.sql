-- Tenants for whom the cloud has accepted this edge, and its name there. edge-sync-forwarder writes it;
-- they get the events about the edge itself.
create table cloud_tenants (
  tenant_id text constraint cloud_tenants_pkey primary key,
  edge_cluster_id text not null
);
grant select, insert, update on cloud_tenants to farmiq_edge;
