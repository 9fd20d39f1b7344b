-- Weigh sessions as their events tell them: begun, weighed, photographed, ended.
create table weighvision_events (
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
  status text generated always as (payload ->> 'status') stored,
  batch_id text generated always as (payload ->> 'batch_id') stored,
  initial_weight_kg double precision generated always as (
    (payload ->> 'initial_weight_kg')::double precision) stored,
  weight_kg double precision generated always as (
    (payload ->> 'weight_kg')::double precision) stored,
  final_weight_kg double precision generated always as (
    (payload ->> 'final_weight_kg')::double precision) stored,
  image_count bigint generated always as ((payload ->> 'image_count')::numeric::bigint) stored,
  media_id uuid generated always as ((payload ->> 'media_id')::uuid) stored,
  inference_result_id uuid generated always as ((payload ->> 'inference_result_id')::uuid) stored,
  clock_suspect boolean not null default false,
  constraint weighvision_events_pkey primary key (tenant_id, event_id)
);
create index weighvision_events_occurred_at_idx on weighvision_events (tenant_id, occurred_at desc);
create index weighvision_events_session_idx on weighvision_events (tenant_id, session_id);
-- What edges call incomplete, for the look of cloud-alerts-service.
create index weighvision_events_incomplete_idx on weighvision_events (occurred_at)
  where event_type = 'weighvision.session.incomplete';

alter table weighvision_events enable row level security;
alter table weighvision_events force row level security;
create policy "Users see in their company" on weighvision_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy weighvision_events_service on weighvision_events for all to farmiq_service
  using (true) with check (true);
grant select on weighvision_events to authenticated;
grant select, insert on weighvision_events to farmiq_service;
