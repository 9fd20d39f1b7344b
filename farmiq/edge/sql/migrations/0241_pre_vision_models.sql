create table vision_models (
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  species text not null,
  version text not null,
  state text not null constraint vision_models_state_known
    check (state in ('active', 'shadow', 'retired')),
  reason text not null,
  manifest jsonb not null,
  n_train bigint not null,
  cv_mape double precision not null,
  baseline_mape double precision not null,
  trained_at timestamptz not null,
  drift jsonb not null default '{}',
  constraint vision_models_pkey primary key
    (tenant_id, farm_id, barn_id, device_id, species, version)
);
create unique index vision_models_in_use_key on vision_models
  (tenant_id, farm_id, barn_id, device_id, species, state) where state <> 'retired';
grant select, insert, update, delete on vision_models to farmiq_edge;
create table vision_days (
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  species text not null,
  version text not null,
  day date not null,
  sessions bigint not null,
  error_sum double precision not null,
  baseline_sessions bigint not null,
  baseline_own_error_sum double precision not null,
  baseline_error_sum double precision not null,
  intervals bigint not null,
  covered bigint not null,
  constraint vision_days_pkey primary key
    (tenant_id, farm_id, barn_id, device_id, species, version, day)
);
grant select, insert, update, delete on vision_days to farmiq_edge;
