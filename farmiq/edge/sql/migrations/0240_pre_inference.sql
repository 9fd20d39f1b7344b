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
create index inference_jobs_pending_idx on inference_jobs ((session_id is null), last_image_at desc)
  where done_at is null;
create index inference_jobs_done_idx on inference_jobs (done_at) where done_at is not null;
grant select, insert, update, delete on inference_jobs to farmiq_edge;

create trigger media_objects_infer_inserted after insert on media_objects
  for each row when (new.upload_status = 'stored') execute function fn_infer_stored();
create trigger media_objects_infer_stored after update on media_objects
  for each row when (new.upload_status = 'stored' and (old.upload_status <> 'stored'
    or new.session_id is distinct from old.session_id)) execute function fn_infer_stored();
create table inference_results (
  id uuid not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  session_id uuid,
  media_id uuid,
  predicted_weight_kg double precision,
  predicted_size double precision,
  confidence double precision not null,
  model_version text not null,
  occurred_at timestamptz not null,
  low_kg double precision,
  high_kg double precision,
  reason text,
  is_shadow boolean not null default false,
  shadow_version text,
  shadow_weight_kg double precision,
  shadow_low_kg double precision,
  shadow_high_kg double precision,
  n_train bigint,
  cv_mape double precision,
  frames_used int not null default 0,
  frames_total int not null default 0,
  features double precision[],
  feature_schema text,
  quality double precision not null default 0,
  frames jsonb not null default '[]',
  species text,
  scored_at timestamptz,
  constraint inference_results_pkey primary key (id),
  constraint inference_results_session_key unique (tenant_id, session_id),
  constraint inference_results_silent_says_why check (
    predicted_weight_kg is not null or reason is not null)
);
create index inference_results_device_idx on inference_results
  (tenant_id, device_id, occurred_at desc);
create index inference_results_unscored_idx on inference_results (occurred_at)
  where scored_at is null and session_id is not null;
create index inference_results_occurred_at_idx on inference_results (occurred_at);
grant select, insert, update, delete on inference_results to farmiq_edge;
create table vision_references (
  tenant_id text not null,
  device_id text not null,
  media_id uuid not null,
  object_key text not null,
  captured_at timestamptz not null,
  constraint vision_references_pkey primary key (tenant_id, device_id)
);
grant select, insert, update, delete on vision_references to farmiq_edge;
alter table media_objects add column purpose text;
-- What was stored before is looked at after everything that comes.
insert into inference_jobs (id, tenant_id, farm_id, barn_id, device_id, session_id, image_count,
  created_at, last_image_at)
select fn_uuid_v7(), m.tenant_id, min(m.farm_id), min(m.barn_id), min(m.device_id), m.session_id,
  count(*), min(m.stored_at), max(m.stored_at)
from media_objects m where m.upload_status = 'stored' and m.session_id is not null
group by m.tenant_id, m.session_id;
insert into inference_jobs (id, tenant_id, farm_id, barn_id, device_id, media_id, created_at,
  last_image_at)
select fn_uuid_v7(), m.tenant_id, m.farm_id, m.barn_id, m.device_id, m.id, m.stored_at, m.stored_at
from media_objects m where m.upload_status = 'stored' and m.session_id is null;
