-- The outbox at any size: a claim's cost stays flat, live events pass a backlog, and what was never
-- delivered is archived before it is deleted.

-- A claim walks these two, so that its cost grows neither with what was delivered, nor with what
-- waits for a retry, nor with what a paused tenant owes (C-20, C-21).
create index sync_outbox_fresh_idx
  on sync_outbox (tenant_id, (priority::bigint) desc, occurred_at)
  where status in ('pending', 'claimed') and attempt_count = 0;
create index sync_outbox_again_idx on sync_outbox (tenant_id, next_attempt_at)
  where status in ('pending', 'claimed') and attempt_count > 0;
-- Every row is written four times in its life: what it leaves behind must go soon.
alter table sync_outbox set (
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);

-- Tenants whose backlog drains, and the priority that their new events get meanwhile (C-92).
create table sync_drain (
  tenant_id text constraint sync_drain_pkey primary key,
  level int not null constraint sync_drain_level_positive check (level > 0),
  since timestamptz not null default now()
);
grant select, insert, update, delete on sync_drain to farmiq_edge;

-- Files that undelivered rows were written to before they were deleted (C-16).
create table sync_archives (
  archive_id uuid constraint sync_archives_pkey primary key,
  file_name text not null,
  sha256 bytea not null,
  row_count int not null,
  made_at timestamptz not null default now()
);
grant select, insert on sync_archives to farmiq_edge;

-- Which row is in which file. Without an entry here, a dlq or failed row cannot be deleted.
create table sync_archived (
  tenant_id text not null,
  event_id uuid not null,
  archive_id uuid not null constraint sync_archived_archive_id_fkey references sync_archives,
  constraint sync_archived_pkey primary key (event_id, archive_id)
);
grant select, insert on sync_archived to farmiq_edge;

grant delete on sync_outbox to farmiq_edge;
-- The body comes with functions/ at the end of this very run.
create or replace function fn_sync_outbox_keep() returns trigger
language plpgsql
as $$
begin
  raise exception 'sync_outbox rows are not deleted before the migration is complete';
end $$;
create trigger sync_outbox_keep before delete on sync_outbox
  for each row execute function fn_sync_outbox_keep();
