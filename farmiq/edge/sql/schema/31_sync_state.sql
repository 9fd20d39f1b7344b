-- How delivery to the cloud goes, per tenant. Informational but for paused_until (C-21). last_error_*
-- say why it pauses, and are null while it does not.
create table sync_state (
  tenant_id text constraint sync_state_pkey primary key,
  last_acked_event_id uuid,
  last_acked_at timestamptz,
  last_sent_batch_id text,
  consecutive_failures int not null default 0,
  paused_until timestamptz,
  last_error_code text,
  last_error_message text
);
grant select, insert, update on sync_state to farmiq_edge;
