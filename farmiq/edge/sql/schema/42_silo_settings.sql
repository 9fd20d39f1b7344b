-- Which silos' weights are taken for intakes, and from which change on a change counts (C-47).
create table silo_settings (
  tenant_id text not null,
  device_id text not null,
  derive_intake boolean not null default false,
  derive_since timestamptz not null default now(),
  noise_kg double precision not null default 10,
  refill_kg double precision not null default 200,
  changed_at timestamptz not null default now(),
  constraint silo_settings_pkey primary key (tenant_id, device_id),
  constraint silo_settings_limits check (noise_kg > 0 and refill_kg >= noise_kg)
);
grant select, insert, update on silo_settings to farmiq_edge;
