-- Which batch is in which barn, as the cloud registers it (cloud_contexts); both days included, and how
-- many animals were placed.
create table cloud_batches (
  tenant_id text not null,
  batch_id text not null,
  farm_id text not null,
  barn_id text not null,
  placed_on date not null,
  closed_on date,
  placed_count integer,
  constraint cloud_batches_pkey primary key (tenant_id, batch_id)
);
create index cloud_batches_barn_idx on cloud_batches (tenant_id, farm_id, barn_id, placed_on);
grant select, insert, update, delete on cloud_batches to farmiq_edge;
