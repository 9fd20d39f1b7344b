-- The buffer of a weigh station. Seconds named ..._s are of the agent's own running clock, which
-- no change of the wall clock moves.
create table meta (name text primary key, value) without rowid;
-- Agents before this line had another client id, whose session at the broker is to be ended.
insert into meta values ('old_session_ended', 1);

create table sessions (
  session_id text primary key,
  batch_id text,
  trace_id text not null,
  boot_id text not null,
  opened_at text not null,
  state text not null check (state in ('open', 'closed', 'cancelled')),
  ended_at text,
  ended_s real,
  final_weight_kg real,
  reason text,
  images integer not null default 0,
  order_us integer not null,
  first_weight_seq integer,
  last_weight_seq integer,
  -- all its events but those of late pictures are made
  settled integer not null default 0,
  problem text
);
create index sessions_unsettled on sessions (session_id) where settled = 0;
create index sessions_ended on sessions (ended_s) where settled = 1;
create index sessions_with_problem on sessions (ended_s) where problem is not null;

-- Weights that are no events yet, because pictures of the session go first.
create table weights (
  id integer primary key,
  session_id text not null,
  weight_kg real not null,
  weighed_at text not null
);
create index weights_session on weights (session_id);

-- Pictures that are not uploaded; the bytes are in a file of this name.
create table images (
  id integer primary key,
  image_id text not null unique,
  session_id text,
  trace_id text not null,
  content_type text not null,
  size_bytes integer not null,
  sha256 text not null,
  captured_at text not null,
  kept_boot text not null,
  kept_s real not null,
  state text not null check (state in ('waiting', 'failed')),
  attempts integer not null default 0,
  retry_s real not null default 0,
  problem text
);
create index images_next on images (retry_s, id) where state = 'waiting';
create index images_failed on images (id) where state = 'failed';
create index images_loose on images (id) where state = 'waiting' and session_id is null;
create index images_session on images (session_id);

create table events (
  seq integer primary key,
  event_id text not null unique,
  event_type text not null,
  session_id text,
  rank integer not null,
  order_us integer not null,
  topic text not null,
  raw blob not null,
  state text not null
    check (state in ('waiting', 'sending', 'published', 'stored', 'refused', 'failed')),
  attempts integer not null default 0,
  kept_s real not null,
  settled_s real,
  reason text
);
create index events_next on events (order_us, seq) where state = 'waiting';
create index events_on_their_way on events (seq) where state in ('sending', 'published');
create index events_stored on events (settled_s) where state = 'stored';
create index events_refused on events (settled_s) where state = 'refused';
create index events_droppable on events (rank, seq)
  where state = 'waiting' and attempts = 0 and rank < 9;
create index events_aged on events (kept_s) where state = 'waiting' and attempts > 0 and rank < 9;
create index events_session on events (session_id);

-- What was dropped on purpose; `told` when the event that says so is made (C-83).
create table ledger (
  id integer primary key,
  class text not null,
  reason text not null,
  count integer not null,
  first_seq integer not null,
  last_seq integer not null,
  told integer not null default 0
);
create unique index ledger_untold on ledger (class, reason) where told = 0;

create table commands (n integer primary key, command_id text not null unique, answer text not null);

-- Counts, so that nobody has to count: kept by the triggers below, in the same transaction.
create table tally (name text primary key, count integer not null) without rowid;
insert into tally values
  ('waiting', 0), ('sending', 0), ('published', 0), ('stored', 0), ('refused', 0), ('failed', 0),
  ('pictures', 0), ('pictures_failed', 0), ('picture_bytes', 0), ('dropped', 0);

create trigger events_in after insert on events begin
  update tally set count = count + 1 where name = new.state;
end;
create trigger events_out after delete on events begin
  update tally set count = count - 1 where name = old.state;
end;
create trigger events_moved after update of state on events when old.state <> new.state begin
  update tally set count = count - 1 where name = old.state;
  update tally set count = count + 1 where name = new.state;
end;
create trigger images_in after insert on images begin
  update tally set count = count + new.size_bytes where name = 'picture_bytes';
  update tally set count = count + 1
    where name = iif(new.state = 'waiting', 'pictures', 'pictures_failed');
end;
create trigger images_out after delete on images begin
  update tally set count = count - old.size_bytes where name = 'picture_bytes';
  update tally set count = count - 1
    where name = iif(old.state = 'waiting', 'pictures', 'pictures_failed');
end;
create trigger images_moved after update of state on images when old.state <> new.state begin
  update tally set count = count - 1
    where name = iif(old.state = 'waiting', 'pictures', 'pictures_failed');
  update tally set count = count + 1
    where name = iif(new.state = 'waiting', 'pictures', 'pictures_failed');
end;
