-- What was inferred of a session or of an image without one (DB-10), once and for ever. Without an
-- estimate predicted_weight_kg is null and `reason` says why. A model that is not used yet (shadow)
-- leaves its figure in shadow_weight_kg. `features` are what training reads; `frames` says of every
-- image what was found. scored_at is when it was compared with the scale.
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
-- What is to be compared with the scale.
create index inference_results_unscored_idx on inference_results (occurred_at)
  where scored_at is null and session_id is not null;
create index inference_results_occurred_at_idx on inference_results (occurred_at);
grant select, insert, update, delete on inference_results to farmiq_edge;
