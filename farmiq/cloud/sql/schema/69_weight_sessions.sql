-- Weigh sessions: what their events in weighvision_events come to, however they came. media_ids are
-- the images that were announced, in their order; received_at is when the first event came here and
-- heard_at when the last did.
create table weight_sessions (
  tenant_id text not null,
  session_id uuid not null,
  farm_id text not null,
  barn_id text not null,
  device_id text,
  batch_id text,
  status text not null default 'created' constraint weight_sessions_status_known
    check (status in ('created', 'finalized', 'cancelled')),
  start_at timestamptz not null,
  end_at timestamptz,
  initial_weight_kg double precision,
  final_weight_kg double precision,
  image_count bigint,
  cancel_reason text,
  has_created boolean not null default false,
  weight_count bigint not null default 0,
  media_ids uuid[] not null default '{}',
  received_at timestamptz not null default clock_timestamp(),
  heard_at timestamptz not null default clock_timestamp(),
  -- What a valid session has and this one has not (SC-01), in the order in which it is told.
  missing text[] not null generated always as (array_remove(array[
    case when not has_created then 'created' end,
    case when weight_count = 0 then 'weight' end,
    case when cardinality(media_ids) = 0 then 'image' end,
    case when status <> 'finalized' then 'finalized' end], null)) stored,
  -- Where the animal stood, and whether the clock of an event's device cannot be right.
  station_id text,
  clock_suspect boolean not null default false,
  -- Whether batch_id was derived from the barn, not named by the device (fn_batch_of).
  batch_derived boolean not null default false,
  constraint weight_sessions_pkey primary key (tenant_id, session_id)
);
create index weight_sessions_start_at_idx on weight_sessions
  (tenant_id, start_at desc, session_id desc);
-- The weighings that count for a batch, and those of a barn that name no batch (fn_batch_weighings).
create index weight_sessions_batch_idx on weight_sessions (tenant_id, batch_id, start_at)
  where status = 'finalized' and final_weight_kg is not null and not clock_suspect;
create index weight_sessions_barn_idx on weight_sessions (tenant_id, farm_id, barn_id, start_at)
  where batch_id is null and status = 'finalized' and final_weight_kg is not null
    and not clock_suspect;
create index weight_sessions_derived_idx on weight_sessions
  (tenant_id, farm_id, barn_id, start_at)
  where batch_derived and status = 'finalized' and final_weight_kg is not null
    and not clock_suspect;

alter table weight_sessions enable row level security;
alter table weight_sessions force row level security;
create policy "Users see in their company" on weight_sessions for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy weight_sessions_service on weight_sessions for all to farmiq_service
  using (true) with check (true);
grant select on weight_sessions to authenticated;
grant select, insert, update on weight_sessions to farmiq_service;
