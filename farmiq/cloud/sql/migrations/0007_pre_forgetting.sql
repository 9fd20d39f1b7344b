-- What only delivery needed is forgotten after its time: ids, and the word of every batch.

-- Rows come in the order of time, so a few bytes per hundred pages tell where the old ones are.
create index ingestion_dedupe_received_at_idx on ingestion_dedupe using brin (received_at)
  with (autosummarize = on);
grant delete on ingestion_dedupe to farmiq_service;

create index sync_events_stored_at_idx on sync_events using brin (stored_at)
  with (autosummarize = on);
grant delete on sync_events to farmiq_service;
