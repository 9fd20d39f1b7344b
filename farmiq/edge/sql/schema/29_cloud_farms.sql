-- Farms as the cloud registers them (cloud_contexts). timezone is null if PostgreSQL here does not
-- know the zone.
create table cloud_farms (
  tenant_id text not null,
  farm_id text not null,
  name text not null,
  timezone text,
  constraint cloud_farms_pkey primary key (tenant_id, farm_id)
);
grant select, insert, update, delete on cloud_farms to farmiq_edge;

-- The zone of a farm's days: what was set at this edge (`farmiq farm set`), else the cloud's.
create view farm_zones with (security_invoker = true) as
  select tenant_id, farm_id, timezone from farms
  union all
  select c.tenant_id, c.farm_id, c.timezone from cloud_farms c
  where c.timezone is not null and not exists (
    select from farms f where f.tenant_id = c.tenant_id and f.farm_id = c.farm_id);
grant select on farm_zones to farmiq_edge;
