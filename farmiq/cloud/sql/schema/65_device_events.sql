-- How devices were, and what they dropped on purpose: the loss ledger (C-83).
create table device_events (
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
  state text generated always as (payload ->> 'state') stored,
  firmware_version text generated always as (payload ->> 'firmware_version') stored,
  dropped_class text generated always as (payload ->> 'class') stored,
  dropped_count bigint generated always as ((payload ->> 'count')::numeric::bigint) stored,
  first_seq bigint generated always as ((payload ->> 'first_seq')::numeric::bigint) stored,
  last_seq bigint generated always as ((payload ->> 'last_seq')::numeric::bigint) stored,
  reason text generated always as (payload ->> 'reason') stored,
  clock_suspect boolean not null default false,
  constraint device_events_pkey primary key (tenant_id, event_id)
);
create index device_events_occurred_at_idx on device_events (tenant_id, occurred_at desc);
create index device_events_device_idx on device_events (tenant_id, device_id, occurred_at desc);
-- Who was revoked, and who was registered again: few rows among many.
create index device_events_revoked_idx on device_events (tenant_id, device_id, occurred_at desc)
  where payload ? 'revoked';

alter table device_events enable row level security;
alter table device_events force row level security;
create policy "Users see in their company" on device_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy device_events_service on device_events for all to farmiq_service
  using (true) with check (true);
grant select on device_events to authenticated;
grant select, insert on device_events to farmiq_service;
