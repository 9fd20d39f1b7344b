-- New types of records, what treatments say, corrections, and records entered over HTTP (C-111).
alter table barn_records alter column device_id drop not null;
alter table barn_records
  add column product text,
  add column dose double precision,
  add column dose_unit text,
  add column withdrawal_days integer,
  add column batch_id text,
  add column replaces text;
-- additive: a check goes that only refused types which the running code does not know either
do $$
begin
  alter table barn_records drop constraint barn_records_type_known;
end $$;
