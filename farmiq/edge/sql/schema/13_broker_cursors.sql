-- How far the broker's log is stored, by lane (D-228). It moves in the transaction that stores the
-- messages, and only from where the gateway with this fencing token left it.
create table broker_cursors (
  stream text not null,
  lane integer not null,
  -- When the broker made the stream: with another value it is another stream.
  created text not null,
  seq bigint not null,
  -- When the broker took the message at `seq`: numbers are used again after a restore.
  stored_at_ns bigint not null,
  fencing_token bigint not null,
  moved_at timestamptz not null default fn_now(),
  constraint broker_cursors_pkey primary key (stream, lane)
);
grant select, insert, update, delete on broker_cursors to farmiq_edge;
