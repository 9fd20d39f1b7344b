-- Feed taken in and lots delivered.
create table feed_events (
  tenant_id text not null,
  event_id uuid not null,
  event_type text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text,
  session_id uuid,
  occurred_at timestamptz not null,
  trace_id text not null,
  payload jsonb not null,
  stored_at timestamptz not null default clock_timestamp(),
  source text generated always as (payload ->> 'source') stored,
  quantity_kg double precision generated always as (
    (payload ->> 'quantity_kg')::double precision) stored,
  feed_lot_id text generated always as (payload ->> 'feed_lot_id') stored,
  clock_suspect boolean not null default false,
  constraint feed_events_pkey primary key (tenant_id, event_id)
);
create index feed_events_occurred_at_idx on feed_events (tenant_id, occurred_at desc);
create index feed_events_barn_idx on feed_events (tenant_id, farm_id, barn_id, occurred_at);
create index feed_events_batch_idx on feed_events (tenant_id, (payload ->> 'batch_id'), occurred_at)
  where (payload ->> 'batch_id') is not null;
create index feed_events_replaces_idx on feed_events (tenant_id, (fn_replaced_event(payload)))
  where (fn_replaced_event(payload)) is not null;
create index feed_events_lot_idx on feed_events (tenant_id, feed_lot_id)
  where feed_lot_id is not null;

alter table feed_events enable row level security;
alter table feed_events force row level security;
create policy "Users see in their company" on feed_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy feed_events_service on feed_events for all to farmiq_service
  using (true) with check (true);
grant select on feed_events to authenticated;
grant select, insert on feed_events to farmiq_service;
