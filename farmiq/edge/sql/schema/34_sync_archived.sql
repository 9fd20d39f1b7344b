-- Which row is in which file. Without an entry here, a dlq or failed row cannot be deleted.
create table sync_archived (
  tenant_id text not null,
  event_id uuid not null,
  archive_id uuid not null constraint sync_archived_archive_id_fkey references sync_archives,
  constraint sync_archived_pkey primary key (event_id, archive_id)
);
grant select, insert on sync_archived to farmiq_edge;
