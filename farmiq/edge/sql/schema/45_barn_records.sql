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
grant select, insert, delete on barn_records to farmiq_edge;
