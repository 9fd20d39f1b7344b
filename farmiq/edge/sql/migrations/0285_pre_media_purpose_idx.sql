-- Pictures of empty scales: few among many.
create index concurrently if not exists media_objects_purpose_idx on media_objects (purpose)
  where purpose is not null;
