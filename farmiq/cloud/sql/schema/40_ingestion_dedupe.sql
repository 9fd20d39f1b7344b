-- Every event the cloud has accepted, once. A row here means: the bus has confirmed it (C-10).
create table ingestion_dedupe (
  tenant_id text not null,
  event_id uuid not null,
  event_type text not null,
  content_hash bytea not null,
  batch_id text not null,
  received_at timestamptz not null default now(),
  constraint ingestion_dedupe_pkey primary key (tenant_id, event_id)
);
-- Rows come in the order of time, so a few bytes per hundred pages tell where the old ones are.
create index ingestion_dedupe_received_at_idx on ingestion_dedupe using brin (received_at)
  with (autosummarize = on);

alter table ingestion_dedupe enable row level security;
alter table ingestion_dedupe force row level security;
create policy "Users see in their company" on ingestion_dedupe for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy ingestion_dedupe_service on ingestion_dedupe for all to farmiq_service
  using (true) with check (true);
grant select on ingestion_dedupe to authenticated;
grant select, insert, delete on ingestion_dedupe to farmiq_service;
