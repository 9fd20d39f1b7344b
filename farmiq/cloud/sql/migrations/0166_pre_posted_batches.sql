-- Records of a batch that were posted and are not stored yet.
create index concurrently if not exists posted_events_batch_idx on posted_events
  (tenant_id, (event -> 'payload' ->> 'batch_id'))
  where (event -> 'payload' ->> 'batch_id') is not null;
