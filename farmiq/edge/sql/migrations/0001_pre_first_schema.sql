-- The first schema of the edge: dedupe, quarantine, telemetry, outbox.

-- Which events were taken lately: a bounded cache, not an audit log (DD-07).
create table ingress_dedupe (
  tenant_id text not null,
  event_id uuid not null,
  first_seen_at timestamptz not null default now(),
  content_hash bytea not null,
  constraint ingress_dedupe_tenant_event_key unique (tenant_id, event_id)
);
create index ingress_dedupe_first_seen_at_idx on ingress_dedupe (first_seen_at asc);
grant select, insert, delete on ingress_dedupe to farmiq_edge;

-- Messages that could not be taken, with every reason; one row per topic and content (C-82, C-107).
-- A topic may be longer than an index row: the key is a hash of topic and bytes.
create table quarantine (
  quarantine_id uuid constraint quarantine_pkey primary key,
  topic text not null,
  raw bytea not null,
  message_sha256 bytea not null constraint quarantine_message_key unique,
  raw_size_bytes int not null,
  reasons text[] not null constraint quarantine_has_reasons check (cardinality(reasons) > 0),
  received_count bigint not null default 1,
  first_received_at timestamptz not null default clock_timestamp(),
  last_received_at timestamptz not null default clock_timestamp()
);
create index quarantine_last_received_at_idx on quarantine (last_received_at);
grant select, insert, update on quarantine to farmiq_edge;

-- Raw readings, partitioned by month; the default partition takes what no month is made for.
-- The key has to contain the partition column (C-19); an id stands once because of ingress_dedupe.
create table telemetry_raw (
  id uuid not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  occurred_at timestamptz not null,
  metric_type text not null,
  metric_value double precision not null,
  unit text not null,
  ingested_at timestamptz not null default now(),
  clock_suspect boolean not null default false,
  constraint telemetry_raw_pkey primary key (id, occurred_at)
) partition by range (occurred_at);
create index telemetry_raw_device_idx on telemetry_raw (tenant_id, device_id, occurred_at desc);
create index telemetry_raw_tenant_idx on telemetry_raw (tenant_id, occurred_at desc);
create table telemetry_raw_default partition of telemetry_raw default;
grant select, insert on telemetry_raw to farmiq_edge;

-- What the cloud is owed. Written in the transaction of the effect, read by edge-sync-forwarder.
create table sync_outbox (
  id uuid constraint sync_outbox_pkey primary key,
  tenant_id text not null,
  farm_id text,
  barn_id text,
  device_id text,
  session_id uuid,
  event_type text not null,
  occurred_at timestamptz,
  trace_id text,
  payload_json jsonb not null,
  payload_size_bytes int,
  status text not null default 'pending' constraint sync_outbox_status_known
    check (status in ('pending', 'claimed', 'sending', 'acked', 'dlq', 'failed')),
  priority int not null default 0,
  attempt_count int not null default 0,
  last_attempt_at timestamptz,
  next_attempt_at timestamptz not null default now(),
  claimed_by text,
  claimed_at timestamptz,
  lease_expires_at timestamptz,
  last_error_code text,
  last_error_message text,
  failed_at timestamptz,
  dlq_reason text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint sync_outbox_tenant_id_key unique (tenant_id, id)
);
create index sync_outbox_pick_idx on sync_outbox (status, next_attempt_at, occurred_at);
create index sync_outbox_tenant_occurred_idx on sync_outbox (tenant_id, occurred_at desc);
create index sync_outbox_lease_idx on sync_outbox (claimed_by, lease_expires_at);
-- A claim walks this one: its cost does not grow with what was already delivered (C-20).
create index sync_outbox_order_idx on sync_outbox (priority desc, occurred_at)
  where status in ('pending', 'claimed');
grant select, insert, update on sync_outbox to farmiq_edge;

create trigger sync_outbox_guard before update on sync_outbox
  for each row execute function fn_sync_outbox_guard();

-- How delivery to the cloud goes, per tenant. Informational but for paused_until (C-21).
create table sync_state (
  tenant_id text constraint sync_state_pkey primary key,
  last_acked_event_id uuid,
  last_acked_at timestamptz,
  last_sent_batch_id text,
  consecutive_failures int not null default 0,
  paused_until timestamptz
);
grant select, insert, update on sync_state to farmiq_edge;
