-- What is to be inferred: one row per session of which an image is stored, and one per image without a
-- session. The row's id becomes the result's: however often a job is begun, it has one result. A job
-- is done when done_at is set. Made by fn_infer_stored alone, in the transaction that stores an image.
create table inference_jobs (
  id uuid not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  session_id uuid,
  media_id uuid,
  image_count bigint not null default 1,
  created_at timestamptz not null default now(),
  last_image_at timestamptz not null default now(),
  attempt_count int not null default 0,
  next_attempt_at timestamptz not null default now(),
  lease_expires_at timestamptz,
  last_error text,
  done_at timestamptz,
  constraint inference_jobs_pkey primary key (id),
  constraint inference_jobs_session_key unique (tenant_id, session_id),
  constraint inference_jobs_media_key unique (media_id),
  constraint inference_jobs_of_one check ((session_id is null) <> (media_id is null))
);
-- What is to be done next: sessions first, what came last first of all.
create index inference_jobs_pending_idx on inference_jobs ((session_id is null), last_image_at desc)
  where done_at is null;
create index inference_jobs_done_idx on inference_jobs (done_at) where done_at is not null;
grant select, insert, update, delete on inference_jobs to farmiq_edge;

create trigger media_objects_infer_inserted after insert on media_objects
  for each row when (new.upload_status = 'stored') execute function fn_infer_stored();
create trigger media_objects_infer_stored after update on media_objects
  for each row when (new.upload_status = 'stored' and (old.upload_status <> 'stored'
    or new.session_id is distinct from old.session_id)) execute function fn_infer_stored();
