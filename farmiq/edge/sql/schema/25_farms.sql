-- Farms whose days are not those of FARMIQ_EDGE_TIMEZONE.
create table farms (
  tenant_id text not null,
  farm_id text not null,
  timezone text not null,
  constraint farms_pkey primary key (tenant_id, farm_id)
);
grant select, insert, update, delete on farms to farmiq_edge;
