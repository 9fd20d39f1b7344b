create index concurrently if not exists barn_records_occurred_idx
  on barn_records (occurred_at desc, event_id desc);
create index concurrently if not exists barn_records_record_idx
  on barn_records (tenant_id, record_id);
create index concurrently if not exists barn_records_replaces_idx
  on barn_records (tenant_id, replaces) where replaces is not null;
