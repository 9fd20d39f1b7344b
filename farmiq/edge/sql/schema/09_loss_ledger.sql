-- Whatever was dropped on purpose, by a device or by this edge (C-83): the sum of these rows is the
-- sum of what is missing. Each row is owed to the cloud as device.buffer.dropped under the same id.
create table loss_ledger (
  loss_id uuid constraint loss_ledger_pkey primary key,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  class text not null,
  count bigint not null constraint loss_ledger_count_positive check (count >= 0),
  first_seq bigint not null,
  last_seq bigint not null,
  reason text not null,
  occurred_at timestamptz not null,
  recorded_at timestamptz not null default now()
);
create index loss_ledger_recorded_at_idx on loss_ledger (recorded_at desc);
grant select, insert on loss_ledger to farmiq_edge;
