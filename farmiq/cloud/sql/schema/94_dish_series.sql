-- A dish under a camera: where it was found and its first image, with which later ones are compared
-- (petri_observations.covered_change). It ends when somebody (ended_by) says that there is a new dish; of a
-- camera at a site one is open.
create table dish_series (
  series_id uuid constraint dish_series_pkey primary key,
  company_id uuid not null,
  site_id uuid not null,
  device_id uuid not null,
  reference_image_id uuid not null,
  started_at timestamptz not null,
  ended_at timestamptz,
  circle_x double precision not null,
  circle_y double precision not null,
  circle_radius double precision not null,
  reference bytea not null,
  created_at timestamptz not null,
  ended_by uuid,
  constraint dish_series_site_fkey foreign key (site_id, company_id)
    references sites (site_id, company_id),
  constraint dish_series_image_fkey foreign key (reference_image_id, device_id, company_id)
    references device_images (image_id, device_id, company_id)
);
create index dish_series_company_idx on dish_series (company_id, site_id, device_id);
create unique index dish_series_open_key on dish_series (device_id, site_id)
  where ended_at is null;

alter table dish_series enable row level security;
alter table dish_series force row level security;
create policy "Users see in their company" on dish_series for select to authenticated
  using (company_id = get_active_company_id());
create policy dish_series_owner on dish_series for all to current_user
  using (true) with check (true);
create policy dish_series_service on dish_series for all to farmiq_service
  using (true) with check (true);
create policy dish_series_jobs_select on dish_series for select to farmiq_jobs using (true);
create policy dish_series_jobs_update on dish_series for update to farmiq_jobs
  using (true) with check (true);
grant select on dish_series to authenticated;
grant select, insert on dish_series to farmiq_service;
grant select (device_id, company_id, ended_at), update (ended_at, ended_by)
  on dish_series to farmiq_jobs;
