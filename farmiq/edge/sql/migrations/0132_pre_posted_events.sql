-- Events that people posted over HTTP, by the key that each was posted with: a repeat gets the same
-- answer. Each waits in the outbox under its id. Of two corrections of one event the second is refused.
create table posted_events (
  tenant_id text not null,
  idempotency_key text not null,
  content_hash bytea not null,
  event_id uuid not null,
  event_type text not null,
  subject text not null,
  replaces text,
  event jsonb not null,
  posted_by text not null,
  posted_at timestamptz not null,
  constraint posted_events_pkey primary key (tenant_id, idempotency_key)
);
create unique index posted_events_replaces_key on posted_events (tenant_id, event_type, replaces)
  where replaces is not null;
create index posted_events_posted_at_idx on posted_events (posted_at);
grant select, insert, delete on posted_events to farmiq_edge;
