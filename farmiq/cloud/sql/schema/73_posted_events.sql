-- Events that people posted over HTTP, by the key that each was posted with: who entered what. It is
-- only ever added to. An event without published_at is still to be put on the bus, under its id;
-- its service then stores it as those of edges. Of two corrections of one event the second is refused.
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
  published_at timestamptz,
  constraint posted_events_pkey primary key (tenant_id, idempotency_key),
  constraint posted_events_tenant_fkey foreign key (tenant_id) references companies (tenant_id)
);
create unique index posted_events_replaces_key on posted_events (tenant_id, event_type, replaces)
  where replaces is not null;
create index posted_events_subject_idx on posted_events (tenant_id, event_type, subject);
create index posted_events_event_id_idx on posted_events (tenant_id, event_id);
create index posted_events_batch_idx on posted_events
  (tenant_id, (event -> 'payload' ->> 'batch_id'))
  where (event -> 'payload' ->> 'batch_id') is not null;
create index posted_events_medicine_idx on posted_events
  (tenant_id, (event ->> 'farm_id'), (event ->> 'barn_id'))
  where event_type = 'barn.record.created'
    and (event -> 'payload' ->> 'record_type') in ('treatment', 'vaccination');
create index posted_events_pending_idx on posted_events (event_type, posted_at)
  where published_at is null;

alter table posted_events enable row level security;
alter table posted_events force row level security;
create policy "Users see in their company" on posted_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy posted_events_service on posted_events for all to farmiq_service
  using (true) with check (true);
grant select on posted_events to authenticated;
grant select, insert, update (published_at) on posted_events to farmiq_service;
