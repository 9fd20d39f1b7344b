-- Images of cameras, one row each however often they are sent. captured_at is the camera's and
-- never changes; names repeat, so the two together say which image it is (C-59). announced_at is
-- when its metadata came again, before it was complete.
create table device_images (
  image_id uuid constraint device_images_pkey primary key,
  company_id uuid not null,
  device_id uuid not null,
  image_name text not null constraint device_images_name_said check (image_name <> ''),
  captured_at timestamptz not null,
  original_capture_date date not null,
  status text not null default 'receiving' constraint device_images_status_known
    check (status in ('receiving', 'complete', 'failed')),
  image_url text,
  image_size bigint,
  total_chunks integer,
  received_at timestamptz,
  error_code text,
  error_message text,
  retry_count integer not null default 0,
  resend_requested_at timestamptz,
  resent_received_at timestamptz,
  observation_id uuid,
  created_at timestamptz not null,
  announced_at timestamptz,
  constraint device_images_capture_key unique (device_id, image_name, captured_at),
  constraint device_images_lineage_key unique (image_id, device_id, company_id),
  constraint device_images_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id),
  constraint device_images_complete_whole check (
    status <> 'complete' or (image_url is not null and received_at is not null))
);
create index device_images_company_idx on device_images (company_id, captured_at desc);
create trigger device_images_guard before update or delete on device_images
  for each row execute function fn_device_images_guard();
create constraint trigger device_images_agrees after insert or update of status on device_images
  deferrable initially deferred for each row execute function fn_wake_agrees();
create trigger device_images_changed after update of resend_requested_at on device_images
  for each row execute function fn_camera_changed();

alter table device_images enable row level security;
alter table device_images force row level security;
create policy "Users see in their company" on device_images for select to authenticated
  using (company_id = get_active_company_id());
create policy device_images_owner on device_images for all to current_user
  using (true) with check (true);
create policy device_images_service on device_images for all to farmiq_service
  using (true) with check (true);
create policy device_images_jobs on device_images for all to farmiq_jobs
  using (true) with check (true);
grant select on device_images to authenticated;
grant select on device_images to farmiq_service;
grant select, insert on device_images to farmiq_jobs;
grant update (status, image_url, image_size, total_chunks, received_at, error_code, error_message,
  retry_count, resend_requested_at, resent_received_at, observation_id, announced_at)
  on device_images to farmiq_jobs;
