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
  -- The device's clock, from which occurred_at comes, cannot be right (C-122).
  clock_suspect boolean not null default false,
  constraint sync_outbox_tenant_id_key unique (tenant_id, id)
);
create index sync_outbox_pick_idx on sync_outbox (status, next_attempt_at, occurred_at);
create index sync_outbox_tenant_occurred_idx on sync_outbox (tenant_id, occurred_at desc);
create index sync_outbox_lease_idx on sync_outbox (claimed_by, lease_expires_at);
-- A claim walks these two, so that its cost grows neither with what was delivered, nor with what
-- waits for a retry, nor with what a paused tenant owes (C-20, C-21).
create index sync_outbox_fresh_idx
  on sync_outbox (tenant_id, (priority::bigint) desc, occurred_at)
  where status in ('pending', 'claimed') and attempt_count = 0;
create index sync_outbox_again_idx on sync_outbox (tenant_id, next_attempt_at)
  where status in ('pending', 'claimed') and attempt_count > 0;
-- Every row is written three times in its life: what it leaves behind must go soon.
alter table sync_outbox set (
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);
grant select, insert, update, delete on sync_outbox to farmiq_edge;

-- The moves of a row to which nothing odd happens need no look at them.
create trigger sync_outbox_guard before update on sync_outbox
  for each row when (not (
    new.payload_json is not distinct from old.payload_json
    and new.updated_at <> old.updated_at
    and (old.status = 'pending' and new.status = 'claimed'
      or old.status = 'claimed' and new.status in ('sending', 'acked')
      or old.status = 'sending' and new.status = 'acked')))
  execute function fn_sync_outbox_guard();
create trigger sync_outbox_keep before delete on sync_outbox
  for each row execute function fn_sync_outbox_keep();
