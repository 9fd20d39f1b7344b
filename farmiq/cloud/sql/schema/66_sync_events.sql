-- Batches of edges: received, and all their events confirmed. About a whole tenant, so no place.
create table sync_events (
  tenant_id text not null,
  event_id uuid not null,
  event_type text not null,
  farm_id text,
  barn_id text,
  device_id text,
  session_id uuid,
  occurred_at timestamptz not null,
  trace_id text not null,
  payload jsonb not null,
  stored_at timestamptz not null default clock_timestamp(),
  batch_id text generated always as (payload ->> 'batch_id') stored,
  event_count bigint generated always as ((payload ->> 'event_count')::numeric::bigint) stored,
  edge_cluster_id text generated always as (payload ->> 'edge_cluster_id') stored,
  status text generated always as (payload ->> 'status') stored,
  clock_suspect boolean not null default false,
  constraint sync_events_pkey primary key (tenant_id, event_id)
);
create index sync_events_occurred_at_idx on sync_events (tenant_id, occurred_at desc);
create index sync_events_stored_at_idx on sync_events using brin (stored_at)
  with (autosummarize = on);

alter table sync_events enable row level security;
alter table sync_events force row level security;
create policy "Users see in their company" on sync_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy sync_events_service on sync_events for all to farmiq_service
  using (true) with check (true);
grant select on sync_events to authenticated;
grant select, insert, delete on sync_events to farmiq_service;
