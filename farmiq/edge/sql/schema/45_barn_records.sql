-- What people wrote down about a barn. The value of a note is text, of a measurement a number; which
-- types there are, the messages say (C-111). device_id is null if it was entered over HTTP. A record
-- that another one names in `replaces` counts for nothing.
create table barn_records (
  event_id uuid not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text,
  record_id text not null,
  record_type text not null,
  value_number double precision,
  value_text text,
  unit text,
  recorded_by_ref text not null,
  recorded_at timestamptz not null,
  occurred_at timestamptz not null,
  stored_at timestamptz not null default now(),
  clock_suspect boolean not null default false,
  product text,
  dose double precision,
  dose_unit text,
  withdrawal_days integer,
  batch_id text,
  replaces text,
  constraint barn_records_pkey primary key (tenant_id, event_id),
  constraint barn_records_one_value check (num_nonnulls(value_number, value_text) = 1)
);
create index barn_records_barn_idx on barn_records (tenant_id, barn_id, recorded_at desc);
create index barn_records_occurred_idx on barn_records (occurred_at desc, event_id desc);
create index barn_records_record_idx on barn_records (tenant_id, record_id);
create index barn_records_replaces_idx on barn_records (tenant_id, replaces)
  where replaces is not null;
grant select, insert, delete on barn_records to farmiq_edge;
