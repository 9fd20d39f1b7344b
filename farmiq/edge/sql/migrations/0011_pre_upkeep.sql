-- What upkeep of all tables needs, and what a silo's device told.

-- Whether a silo's device tells of its feed itself is asked every round.
create index feed_intakes_told_idx on feed_intakes (tenant_id, device_id)
  where parent_event_id is null;

-- When somebody last began to send a command: no lock is held while the broker is told.
alter table device_commands add column tried_at timestamptz;

-- Retention: what is over its time and not owed to the cloud any more.
grant delete on feed_lots, feed_intakes, barn_records, device_state to farmiq_edge;
