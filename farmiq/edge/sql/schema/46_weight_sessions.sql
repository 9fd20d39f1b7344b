-- Weigh sessions: what their events come to (weight_session_events; farm/sessions.py).
-- Any event of a session makes its row (C-28). received_at is when the edge heard of it first and
-- heard_at when last: timers go by these, never by a device's clock (C-27, C-44).
create table weight_sessions (
  id uuid not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  station_id text not null,
  batch_id text,
  status text not null default 'created' constraint weight_sessions_status_known
    check (status in ('created', 'finalized', 'cancelled')),
  start_at timestamptz not null,
  end_at timestamptz,
  initial_weight_kg double precision,
  final_weight_kg double precision,
  image_count bigint constraint weight_sessions_image_count_not_negative check (image_count >= 0),
  cancel_reason text,
  received_at timestamptz not null default now(),
  heard_at timestamptz not null default now(),
  -- Nothing is waited for any more: given up by the device, or whole with every image it counted.
  is_settled boolean not null default false,
  -- When it was last looked at, null if something came since, and how many images were stored under
  -- its id then, whoever stored them.
  judged_at timestamptz,
  stored_image_count bigint not null default 0,
  is_incomplete boolean not null default false,
  incomplete_reason text,
  incomplete_at timestamptz,
  constraint weight_sessions_pkey primary key (id),
  constraint weight_sessions_incomplete_says_why check (
    is_incomplete = (incomplete_reason is not null) and is_incomplete = (incomplete_at is not null))
);
create index weight_sessions_device_idx on weight_sessions (tenant_id, device_id, start_at desc);
create index weight_sessions_status_idx on weight_sessions (tenant_id, status, start_at desc);
create index weight_sessions_start_idx on weight_sessions (start_at desc, id desc);
-- What the timer looks at, and what retention does.
create index weight_sessions_waiting_idx on weight_sessions (received_at, id) where not is_settled;
create index weight_sessions_heard_idx on weight_sessions (heard_at) where status <> 'created';
grant select, insert, update, delete on weight_sessions to farmiq_edge;
