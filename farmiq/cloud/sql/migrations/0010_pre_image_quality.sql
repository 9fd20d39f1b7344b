-- How good each image is, and whether its wake went to the farm's telemetry.
alter table petri_observations
  add column quality text constraint petri_observations_quality_known check (
    quality in ('ok', 'blurred', 'dark', 'bright', 'unreadable', 'missing')),
  add column quality_reason text,
  add column size_bytes bigint,
  add column sha256 text,
  add column width_px integer,
  add column height_px integer,
  add column sharpness double precision,
  add column brightness double precision,
  add column dark_share double precision,
  add column bright_share double precision,
  add column thumbnail_url text,
  add column judged_at timestamptz,
  add column judging_until timestamptz,
  add column judge_attempts integer not null default 0,
  add column bridged_at timestamptz,
  add column bridge_problem text;
create index petri_observations_unjudged_idx on petri_observations (created_at)
  where quality is null;
create index petri_observations_unbridged_idx on petri_observations (created_at)
  where bridged_at is null;
create trigger petri_observations_changed after update of quality on petri_observations
  for each row when (new.quality <> 'ok') execute function fn_camera_changed();
grant update (quality, quality_reason, size_bytes, sha256, width_px, height_px, sharpness,
  brightness, dark_share, bright_share, thumbnail_url, judged_at, judging_until, judge_attempts,
  bridged_at, bridge_problem) on petri_observations to farmiq_service;
