-- Feed that animals took in: told by a device, imported, derived from a silo's weight, or entered by
-- people. Each is owed to the cloud as feed.intake.recorded under the same id. parent_event_id is what
-- it was made from: an import, or the reading that ended a fall of weight; else null.
create table feed_intakes (
  intake_id uuid not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text,
  source text not null constraint feed_intakes_source_known
    check (source in ('SILO_AUTO', 'MANUAL', 'IMPORT')),
  feed_lot_id text,
  quantity_kg double precision not null constraint feed_intakes_quantity_not_negative
    check (quantity_kg >= 0),
  occurred_at timestamptz not null,
  recorded_at timestamptz not null default now(),
  parent_event_id uuid,
  import_row int,
  import_ref text,
  clock_suspect boolean not null default false,
  -- The batch that the device named, or that was in the barn on the local day.
  batch_id text,
  -- Who entered it over HTTP; null if a device told it, or if it was made from something.
  recorded_by text,
  constraint feed_intakes_pkey primary key (tenant_id, intake_id)
);
-- The same rows of the same import, whatever id the sender gave it this time (D-61).
create unique index feed_intakes_import_key on feed_intakes (tenant_id, farm_id, barn_id, device_id,
  occurred_at, import_row, import_ref, feed_lot_id, quantity_kg) where import_row is not null;
create index feed_intakes_occurred_idx on feed_intakes (occurred_at desc, intake_id desc);
create index feed_intakes_device_idx on feed_intakes (tenant_id, device_id, occurred_at desc);
-- Whether a silo's device tells of its feed itself is asked every round.
create index feed_intakes_told_idx on feed_intakes (tenant_id, device_id)
  where parent_event_id is null;
grant select, insert, delete on feed_intakes to farmiq_edge;
