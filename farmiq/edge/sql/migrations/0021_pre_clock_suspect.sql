-- The edge's word that a device's clock cannot be right goes with the event to the cloud.
alter table sync_outbox add column clock_suspect boolean not null default false;
