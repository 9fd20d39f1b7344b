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

alter table processes enable row level security;
alter table processes force row level security;
create policy processes_owner on processes for all to current_user
  using (true) with check (true);
create policy processes_service on processes for all to farmiq_service
  using (true) with check (true);
grant select, insert, update, delete on processes to farmiq_service;
