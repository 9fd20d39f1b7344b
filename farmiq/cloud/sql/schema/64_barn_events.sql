-- What people wrote down about barns. The value of a note is its text (D-22).
create table barn_events (
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
  record_id text generated always as (payload ->> 'record_id') stored,
  record_type text generated always as (payload ->> 'record_type') stored,
  value_number double precision generated always as (
    case when jsonb_typeof(payload -> 'value') = 'number'
      then (payload ->> 'value')::double precision end) stored,
  value_text text generated always as (
    case when jsonb_typeof(payload -> 'value') = 'string' then payload ->> 'value' end) stored,
  unit text generated always as (payload ->> 'unit') stored,
  recorded_by_ref text generated always as (payload ->> 'recorded_by_ref') stored,
  clock_suspect boolean not null default false,
  constraint barn_events_pkey primary key (tenant_id, event_id)
);
create index barn_events_occurred_at_idx on barn_events (tenant_id, occurred_at desc);
create index barn_events_barn_idx on barn_events (tenant_id, farm_id, barn_id, occurred_at);
create index barn_events_batch_idx on barn_events (tenant_id, (payload ->> 'batch_id'), occurred_at)
  where (payload ->> 'batch_id') is not null;
create index barn_events_replaces_idx on barn_events (tenant_id, (payload ->> 'replaces'))
  where (payload ->> 'replaces') is not null;
create index barn_events_record_idx on barn_events (tenant_id, record_id);

alter table barn_events enable row level security;
alter table barn_events force row level security;
create policy "Users see in their company" on barn_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy barn_events_service on barn_events for all to farmiq_service
  using (true) with check (true);
grant select on barn_events to authenticated;
grant select, insert on barn_events to farmiq_service;
