-- A table for every family of events: nothing of a barn stops on its way.
-- Each family's own columns are made from the payload, so the two cannot disagree.

create table telemetry_aggregates (
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
  metric_type text generated always as (payload ->> 'metric_type') stored,
  aggregation_window text generated always as (payload ->> 'aggregation_window') stored,
  avg_value double precision generated always as (
    (payload ->> 'avg_value')::double precision) stored,
  min_value double precision generated always as (
    (payload ->> 'min_value')::double precision) stored,
  max_value double precision generated always as (
    (payload ->> 'max_value')::double precision) stored,
  unit text generated always as (payload ->> 'unit') stored,
  constraint telemetry_aggregates_pkey primary key (tenant_id, event_id)
);
create index telemetry_aggregates_occurred_at_idx on telemetry_aggregates (tenant_id, occurred_at desc);

alter table telemetry_aggregates enable row level security;
alter table telemetry_aggregates force row level security;
create policy "Users see in their company" on telemetry_aggregates for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy telemetry_aggregates_service on telemetry_aggregates for all to farmiq_service
  using (true) with check (true);
grant select on telemetry_aggregates to authenticated;
grant select, insert on telemetry_aggregates to farmiq_service;

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
  constraint weighvision_events_pkey primary key (tenant_id, event_id)
);
create index weighvision_events_occurred_at_idx on weighvision_events (tenant_id, occurred_at desc);
create index weighvision_events_session_idx on weighvision_events (tenant_id, session_id);

alter table weighvision_events enable row level security;
alter table weighvision_events force row level security;
create policy "Users see in their company" on weighvision_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy weighvision_events_service on weighvision_events for all to farmiq_service
  using (true) with check (true);
grant select on weighvision_events to authenticated;
grant select, insert on weighvision_events to farmiq_service;

create table media_events (
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
  media_id uuid generated always as ((payload ->> 'media_id')::uuid) stored,
  path text generated always as (payload ->> 'path') stored,
  mime_type text generated always as (payload ->> 'mime_type') stored,
  size_bytes bigint generated always as ((payload ->> 'size_bytes')::numeric::bigint) stored,
  bucket text generated always as (payload ->> 'bucket') stored,
  object_key text generated always as (payload ->> 'object_key') stored,
  sha256 text generated always as (payload ->> 'sha256') stored,
  constraint media_events_pkey primary key (tenant_id, event_id)
);
create index media_events_occurred_at_idx on media_events (tenant_id, occurred_at desc);
create index media_events_media_id_idx on media_events (tenant_id, media_id);

alter table media_events enable row level security;
alter table media_events force row level security;
create policy "Users see in their company" on media_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy media_events_service on media_events for all to farmiq_service
  using (true) with check (true);
grant select on media_events to authenticated;
grant select, insert on media_events to farmiq_service;

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
  constraint inference_events_pkey primary key (tenant_id, event_id)
);
create index inference_events_occurred_at_idx on inference_events (tenant_id, occurred_at desc);

alter table inference_events enable row level security;
alter table inference_events force row level security;
create policy "Users see in their company" on inference_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy inference_events_service on inference_events for all to farmiq_service
  using (true) with check (true);
grant select on inference_events to authenticated;
grant select, insert on inference_events to farmiq_service;

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
  constraint feed_events_pkey primary key (tenant_id, event_id)
);
create index feed_events_occurred_at_idx on feed_events (tenant_id, occurred_at desc);

alter table feed_events enable row level security;
alter table feed_events force row level security;
create policy "Users see in their company" on feed_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy feed_events_service on feed_events for all to farmiq_service
  using (true) with check (true);
grant select on feed_events to authenticated;
grant select, insert on feed_events to farmiq_service;

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
  constraint barn_events_pkey primary key (tenant_id, event_id)
);
create index barn_events_occurred_at_idx on barn_events (tenant_id, occurred_at desc);

alter table barn_events enable row level security;
alter table barn_events force row level security;
create policy "Users see in their company" on barn_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy barn_events_service on barn_events for all to farmiq_service
  using (true) with check (true);
grant select on barn_events to authenticated;
grant select, insert on barn_events to farmiq_service;

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
  constraint device_events_pkey primary key (tenant_id, event_id)
);
create index device_events_occurred_at_idx on device_events (tenant_id, occurred_at desc);
create index device_events_device_idx on device_events (tenant_id, device_id, occurred_at desc);

alter table device_events enable row level security;
alter table device_events force row level security;
create policy "Users see in their company" on device_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy device_events_service on device_events for all to farmiq_service
  using (true) with check (true);
grant select on device_events to authenticated;
grant select, insert on device_events to farmiq_service;

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
  constraint sync_events_pkey primary key (tenant_id, event_id)
);
create index sync_events_occurred_at_idx on sync_events (tenant_id, occurred_at desc);

alter table sync_events enable row level security;
alter table sync_events force row level security;
create policy "Users see in their company" on sync_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy sync_events_service on sync_events for all to farmiq_service
  using (true) with check (true);
grant select on sync_events to authenticated;
grant select, insert on sync_events to farmiq_service;

create table kpi_events (
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
  kpi_date date generated always as (
    make_date(
      split_part(payload ->> 'kpi_date', '-', 1)::integer,
      split_part(payload ->> 'kpi_date', '-', 2)::integer,
      split_part(payload ->> 'kpi_date', '-', 3)::integer)) stored,
  kpi_type text generated always as (payload ->> 'kpi_type') stored,
  value double precision generated always as ((payload ->> 'value')::double precision) stored,
  unit text generated always as (payload ->> 'unit') stored,
  source_event_count bigint generated always as (
    (payload ->> 'source_event_count')::numeric::bigint) stored,
  constraint kpi_events_pkey primary key (tenant_id, event_id)
);
create index kpi_events_occurred_at_idx on kpi_events (tenant_id, occurred_at desc);

alter table kpi_events enable row level security;
alter table kpi_events force row level security;
create policy "Users see in their company" on kpi_events for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy kpi_events_service on kpi_events for all to farmiq_service
  using (true) with check (true);
grant select on kpi_events to authenticated;
grant select, insert on kpi_events to farmiq_service;
