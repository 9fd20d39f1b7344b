-- Files that undelivered rows were written to before they were deleted (C-16).
create table sync_archives (
  archive_id uuid constraint sync_archives_pkey primary key,
  file_name text not null,
  sha256 bytea not null,
  row_count int not null,
  made_at timestamptz not null default now()
);
grant select, insert on sync_archives to farmiq_edge;
