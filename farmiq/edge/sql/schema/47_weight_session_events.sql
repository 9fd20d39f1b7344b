-- The facts of weigh sessions, one row per event; weight_sessions is made from them. weight_kg is
-- the weighing's, or the weight that created or finalized named; animal_id is as created named it.
create table weight_session_events (
  tenant_id text not null,
  event_id uuid not null,
  session_id uuid not null constraint weight_session_events_session_fk
    references weight_sessions (id) on delete cascade,
  event_type text not null,
  occurred_at timestamptz not null,
  seq bigint,
  batch_id text,
  weight_kg double precision,
  image_count bigint,
  media_id uuid,
  reason text,
  clock_suspect boolean not null default false,
  received_at timestamptz not null default now(),
  animal_id text,
  constraint weight_session_events_pkey primary key (tenant_id, event_id)
);
create index weight_session_events_session_idx on weight_session_events
  (session_id, event_type, occurred_at, seq, event_id);
grant select, insert, delete on weight_session_events to farmiq_edge;
