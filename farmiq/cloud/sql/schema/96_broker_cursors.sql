-- How far a gateway has read a broker's log (D-228). It moves in the transaction that stores what was
-- read, by compare-and-set: of two gateways that read the same messages one alone can store them.
-- created, seq and stored_at_ns are those of the last message stored.
create table broker_cursors (
  stream text not null,
  lane integer not null,
  created text not null,
  seq bigint not null,
  stored_at_ns bigint not null,
  fencing_token bigint not null,
  moved_at timestamptz not null default fn_now(),
  constraint broker_cursors_pkey primary key (stream, lane)
);

alter table broker_cursors enable row level security;
alter table broker_cursors force row level security;
create policy broker_cursors_owner on broker_cursors for all to current_user
  using (true) with check (true);
create policy broker_cursors_service on broker_cursors for all to farmiq_service
  using (true) with check (true);
grant select, insert, update, delete on broker_cursors to farmiq_service;
