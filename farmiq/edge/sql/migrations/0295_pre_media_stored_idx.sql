-- Images that are new since a moment: backups copy them as they come.
create index concurrently if not exists media_objects_stored_idx on media_objects (stored_at)
  where upload_status = 'stored';
