-- What an image shows, one row per image; slot_index is the camera's slot, else the wake's
-- window (C-80).
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
  constraint petri_observations_session_fkey
    foreign key (site_device_session_id, site_id, program_id, company_id)
    references site_device_sessions (session_id, site_id, program_id, company_id),
  constraint petri_observations_image_fkey foreign key (image_id, device_id, company_id)
    references device_images (image_id, device_id, company_id)
);
create index petri_observations_company_idx on petri_observations (company_id, observed_at desc);
create index petri_observations_payload_id_idx on petri_observations (payload_id);

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
grant select, insert on petri_observations to farmiq_jobs;

-- An image and its observation name each other; this half needs both tables.
alter table device_images add constraint device_images_observation_fkey
  foreign key (observation_id) references petri_observations (observation_id);
