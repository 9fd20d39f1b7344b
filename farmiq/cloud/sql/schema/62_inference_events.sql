-- What models made of images.
create table inference_events (
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
  inference_result_id uuid generated always as ((payload ->> 'inference_result_id')::uuid) stored,
  predicted_weight_kg double precision generated always as (
    (payload ->> 'predicted_weight_kg')::double precision) stored,
  confidence double precision generated always as (
    (payload ->> 'confidence')::double precision) stored,
  model_version text generated always as (payload ->> 'model_version') stored,
  clock_suspect boolean not null default false,
  constraint inference_events_pkey primary key (tenant_id, event_id)
);
create index inference_events_occurred_at_idx on inference_events (tenant_id, occurred_at desc);
-- The estimates of a session, newest first.
create index inference_events_session_idx on inference_events
  (tenant_id, session_id, occurred_at desc, event_id desc) where session_id is not null;
-- The last ones of a station.
create index inference_events_device_idx on inference_events
  (tenant_id, device_id, occurred_at desc);

alter table inference_events enable row level security;
alter table inference_events force row level security;
create policy "Users see in their company" on inference_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy inference_events_service on inference_events for all to farmiq_service
  using (true) with check (true);
grant select on inference_events to authenticated;
grant select, insert on inference_events to farmiq_service;
