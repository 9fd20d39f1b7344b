-- The last copy of what the cloud registers for a tenant of this edge (C-114), whole and as it came.
-- Only edge-sync-forwarder writes it; the edge works with it while the cloud is away.
create table cloud_contexts (
  tenant_id text constraint cloud_contexts_pkey primary key,
  etag text not null,
  content jsonb not null,
  changed_at timestamptz not null,
  checked_at timestamptz not null
);
grant select, insert, update, delete on cloud_contexts to farmiq_edge;

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

-- Which batch is in which barn, as the cloud registers it (cloud_contexts); both days included.
create table cloud_batches (
  tenant_id text not null,
  batch_id text not null,
  farm_id text not null,
  barn_id text not null,
  placed_on date not null,
  closed_on date,
  constraint cloud_batches_pkey primary key (tenant_id, batch_id)
);
create index cloud_batches_barn_idx on cloud_batches (tenant_id, farm_id, barn_id, placed_on);
grant select, insert, update, delete on cloud_batches to farmiq_edge;

-- The batch that a device named, or that was in the barn on the local day.
alter table feed_intakes add column batch_id text;
