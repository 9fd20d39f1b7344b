-- Feed and barn at the edge: lots, intakes, silos, records.

-- Deliveries of feed, as people enter them. Each is owed to the cloud as feed.lot.received under the
-- same id. The key that a client gives and the hash of what it said tell a repeat from a conflict.
create table feed_lots (
  event_id uuid not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text,
  feed_lot_id text not null,
  quantity_kg double precision not null constraint feed_lots_quantity_not_negative
    check (quantity_kg >= 0),
  occurred_at timestamptz not null,
  recorded_at timestamptz not null default now(),
  recorded_by text not null,
  idempotency_key text,
  content_hash bytea not null,
  constraint feed_lots_pkey primary key (tenant_id, event_id),
  constraint feed_lots_idempotency_key unique (tenant_id, idempotency_key)
);
create index feed_lots_occurred_idx on feed_lots (occurred_at desc, event_id desc);
grant select, insert on feed_lots to farmiq_edge;

-- Feed that animals took in: told by a device, imported, or derived from a silo's weight. Each is owed
-- to the cloud as feed.intake.recorded under the same id. parent_event_id is what it was made from: an
-- import, or the reading that ended a fall of weight; null if a device told it itself.
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
  constraint feed_intakes_pkey primary key (tenant_id, intake_id)
);
-- The same rows of the same import, whatever id the sender gave it this time (D-61).
create unique index feed_intakes_import_key on feed_intakes (tenant_id, farm_id, barn_id, device_id,
  occurred_at, import_row, import_ref, feed_lot_id, quantity_kg) where import_row is not null;
create index feed_intakes_occurred_idx on feed_intakes (occurred_at desc, intake_id desc);
create index feed_intakes_device_idx on feed_intakes (tenant_id, device_id, occurred_at desc);
grant select, insert on feed_intakes to farmiq_edge;

-- Which silos' weights are taken for intakes, and from which change on a change counts (C-47).
create table silo_settings (
  tenant_id text not null,
  device_id text not null,
  derive_intake boolean not null default false,
  derive_since timestamptz not null default now(),
  noise_kg double precision not null default 10,
  refill_kg double precision not null default 200,
  changed_at timestamptz not null default now(),
  constraint silo_settings_pkey primary key (tenant_id, device_id),
  constraint silo_settings_limits check (noise_kg > 0 and refill_kg >= noise_kg)
);
grant select, insert, update on silo_settings to farmiq_edge;

-- How far a silo's readings were derived from, and what of them is still open (edge/feed/silo.py).
create table silo_states (
  tenant_id text not null,
  device_id text not null,
  state jsonb not null default '{}',
  derived_at timestamptz not null default now(),
  constraint silo_states_pkey primary key (tenant_id, device_id)
);
grant select, insert, update, delete on silo_states to farmiq_edge;

-- What people wrote down about a barn. The value of a note is text, of everything else a number.
create table barn_records (
  event_id uuid not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  record_id text not null,
  record_type text not null constraint barn_records_type_known
    check (record_type in ('mortality', 'cull', 'water', 'temperature', 'note')),
  value_number double precision,
  value_text text,
  unit text,
  recorded_by_ref text not null,
  recorded_at timestamptz not null,
  occurred_at timestamptz not null,
  stored_at timestamptz not null default now(),
  clock_suspect boolean not null default false,
  constraint barn_records_pkey primary key (tenant_id, event_id),
  constraint barn_records_one_value check (num_nonnulls(value_number, value_text) = 1)
);
create index barn_records_barn_idx on barn_records (tenant_id, barn_id, recorded_at desc);
grant select, insert on barn_records to farmiq_edge;
