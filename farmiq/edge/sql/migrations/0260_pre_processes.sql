-- The processes that run services on this database (D-580): each writes its row once a minute and
-- deletes it at its end. `revision` is the newest migration that its code knows.
create table processes (
  process_id uuid constraint processes_pkey primary key,
  services text[] not null,
  host text not null,
  pid integer not null,
  version text not null,
  revision text not null,
  started_at timestamptz not null default now(),
  seen_at timestamptz not null default now()
);
grant select, insert, update, delete on processes to farmiq_edge;
