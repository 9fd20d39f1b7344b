create index concurrently if not exists feed_events_barn_idx on feed_events (tenant_id, farm_id, barn_id, occurred_at);
create index concurrently if not exists feed_events_batch_idx on feed_events (tenant_id, (payload ->> 'batch_id'), occurred_at)
  where (payload ->> 'batch_id') is not null;
create index concurrently if not exists feed_events_replaces_idx on feed_events (tenant_id, (fn_replaced_event(payload)))
  where (fn_replaced_event(payload)) is not null;
create index concurrently if not exists feed_events_lot_idx on feed_events (tenant_id, feed_lot_id)
  where feed_lot_id is not null;
create index concurrently if not exists barn_events_barn_idx on barn_events (tenant_id, farm_id, barn_id, occurred_at);
create index concurrently if not exists barn_events_batch_idx on barn_events (tenant_id, (payload ->> 'batch_id'), occurred_at)
  where (payload ->> 'batch_id') is not null;
create index concurrently if not exists barn_events_replaces_idx on barn_events (tenant_id, (payload ->> 'replaces'))
  where (payload ->> 'replaces') is not null;
create index concurrently if not exists barn_events_record_idx on barn_events (tenant_id, record_id);
