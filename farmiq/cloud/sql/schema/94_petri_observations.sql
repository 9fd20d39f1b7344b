-- What an image shows, one row per image; slot_index is the camera's slot, else the wake's
-- window (C-80). Without quality nobody has looked at it yet: whoever does says so by judging_until,
-- and how often that was begun by judge_attempts. bridged_at: its wake is in the farm's telemetry
-- (C-87), or bridge_problem says why it cannot be. covered_change: how much more of the dish is covered
-- than in the first image of its series, with its quality from 0 to 1; or dish_problem says why nothing
-- can be told (D-560).
create table petri_observations (
  observation_id uuid constraint petri_observations_pkey primary key,
  company_id uuid not null,
  program_id uuid not null,
  site_id uuid not null,
  site_device_session_id uuid not null,
  device_id uuid not null,
  payload_id uuid not null constraint petri_observations_payload_fkey
    references device_wake_payloads (payload_id),
  image_id uuid not null constraint petri_observations_image_key unique,
  slot_index integer,
  is_device_generated boolean not null,
  observed_at timestamptz not null,
  created_at timestamptz not null,
  quality text constraint petri_observations_quality_known check (
    quality in ('ok', 'blurred', 'dark', 'bright', 'unreadable', 'missing')),
  quality_reason text,
  size_bytes bigint,
  sha256 text,
  width_px integer,
  height_px integer,
  sharpness double precision,
  brightness double precision,
  dark_share double precision,
  bright_share double precision,
  thumbnail_url text,
  judged_at timestamptz,
  judging_until timestamptz,
  judge_attempts integer not null default 0,
  bridged_at timestamptz,
  bridge_problem text,
  dish_series_id uuid constraint petri_observations_dish_series_fkey
    references dish_series (series_id),
  covered_change double precision,
  covered_quality double precision,
  dish_problem text,
  constraint petri_observations_session_fkey
    foreign key (site_device_session_id, site_id, program_id, company_id)
    references site_device_sessions (session_id, site_id, program_id, company_id),
  constraint petri_observations_image_fkey foreign key (image_id, device_id, company_id)
    references device_images (image_id, device_id, company_id)
);
create index petri_observations_company_idx on petri_observations (company_id, observed_at desc);
create index petri_observations_payload_id_idx on petri_observations (payload_id);
create index petri_observations_unjudged_idx on petri_observations (created_at)
  where quality is null;
create index petri_observations_unbridged_idx on petri_observations (created_at)
  where bridged_at is null;
create index petri_observations_dish_series_id_idx on petri_observations
  (dish_series_id, observed_at) where dish_series_id is not null;
create trigger petri_observations_changed after update of quality on petri_observations
  for each row when (new.quality <> 'ok') execute function fn_camera_changed();

alter table petri_observations enable row level security;
alter table petri_observations force row level security;
create policy "Users see in their company" on petri_observations for select to authenticated
  using (company_id = get_active_company_id());
create policy petri_observations_owner on petri_observations for all to current_user
  using (true) with check (true);
create policy petri_observations_service on petri_observations for all to farmiq_service
  using (true) with check (true);
create policy petri_observations_jobs on petri_observations for all to farmiq_jobs
  using (true) with check (true);
grant select on petri_observations to authenticated;
grant select on petri_observations to farmiq_service;
grant update (quality, quality_reason, size_bytes, sha256, width_px, height_px, sharpness,
  brightness, dark_share, bright_share, thumbnail_url, judged_at, judging_until, judge_attempts,
  bridged_at, bridge_problem, dish_series_id, covered_change, covered_quality, dish_problem)
  on petri_observations to farmiq_service;
grant select, insert on petri_observations to farmiq_jobs;

-- An image and its observation name each other; this half needs both tables.
alter table device_images add constraint device_images_observation_fkey
  foreign key (observation_id) references petri_observations (observation_id);
