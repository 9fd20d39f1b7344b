-- Deliveries of feed, as people enter them. Each is owed to the cloud as feed.lot.received under the
-- same id. The key that a client gives and the hash of what it said tell a repeat from a conflict.
create table feed_lots (
  event_id uuid not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text,
  feed_lot_id text not null,
  quantity_kg double precision not null constraint feed_lots_quantity_not_negative
    check (quantity_kg >= 0),
  occurred_at timestamptz not null,
  recorded_at timestamptz not null default now(),
  recorded_by text not null,
  idempotency_key text,
  content_hash bytea not null,
  constraint feed_lots_pkey primary key (tenant_id, event_id),
  constraint feed_lots_idempotency_key unique (tenant_id, idempotency_key)
);
create index feed_lots_occurred_idx on feed_lots (occurred_at desc, event_id desc);
grant select, insert, delete on feed_lots to farmiq_edge;
