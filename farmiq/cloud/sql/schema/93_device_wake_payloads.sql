-- One row per wake: where it belongs, what the camera measured, what became of its image.
-- What the camera said is never changed. received_at is when its image was complete.
-- A wake that takes an expected window takes it alone; all others are overage (C-63).
create table device_wake_payloads (
  payload_id uuid constraint device_wake_payloads_pkey primary key,
  company_id uuid not null,
  program_id uuid not null,
  site_id uuid not null,
  site_device_session_id uuid not null,
  device_id uuid not null,
  image_id uuid not null constraint device_wake_payloads_image_key unique,
  captured_at timestamptz not null,
  received_at timestamptz,
  wake_window_index integer,
  temperature double precision,
  humidity double precision,
  pressure double precision,
  gas_resistance double precision,
  battery_voltage double precision,
  wifi_rssi double precision,
  telemetry_data jsonb not null default '{}',
  payload_status text not null default 'pending' constraint device_wake_payloads_status_known
    check (payload_status in ('pending', 'complete', 'failed')),
  image_status text not null generated always as (payload_status) stored,
  overage_flag boolean not null,
  overage_reason text constraint device_wake_payloads_reason_known
    check (overage_reason in ('off_schedule', 'bucket_taken', 'no_schedule')),
  clock_suspect boolean not null default false,
  resent_received_at timestamptz,
  created_at timestamptz not null,
  constraint device_wake_payloads_session_fkey
    foreign key (site_device_session_id, site_id, program_id, company_id)
    references site_device_sessions (session_id, site_id, program_id, company_id),
  constraint device_wake_payloads_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id),
  constraint device_wake_payloads_image_fkey foreign key (image_id, device_id, company_id)
    references device_images (image_id, device_id, company_id),
  constraint device_wake_payloads_overage_said
    check (overage_flag = (overage_reason is not null)),
  constraint device_wake_payloads_window_said check (overage_flag or wake_window_index is not null)
);
create unique index device_wake_payloads_window_idx
  on device_wake_payloads (site_device_session_id, device_id, wake_window_index)
  where not overage_flag;
create index device_wake_payloads_session_idx
  on device_wake_payloads (site_device_session_id, company_id);
create index device_wake_payloads_device_idx on device_wake_payloads (device_id, captured_at desc);
create index device_wake_payloads_company_idx
  on device_wake_payloads (company_id, captured_at desc);
create index device_wake_payloads_pending_idx on device_wake_payloads (created_at)
  where payload_status = 'pending';
create trigger device_wake_payloads_guard before update or delete on device_wake_payloads
  for each row execute function fn_device_wake_payloads_guard();
create constraint trigger device_wake_payloads_agrees
  after insert or update of payload_status on device_wake_payloads
  deferrable initially deferred for each row execute function fn_wake_agrees();
create trigger device_wake_payloads_count
  after insert or update of payload_status on device_wake_payloads
  for each row execute function fn_device_wake_payloads_count();

alter table device_wake_payloads enable row level security;
alter table device_wake_payloads force row level security;
create policy "Users see in their company" on device_wake_payloads for select to authenticated
  using (company_id = get_active_company_id());
create policy device_wake_payloads_owner on device_wake_payloads for all to current_user
  using (true) with check (true);
create policy device_wake_payloads_service on device_wake_payloads for all to farmiq_service
  using (true) with check (true);
create policy device_wake_payloads_jobs on device_wake_payloads for all to farmiq_jobs
  using (true) with check (true);
grant select on device_wake_payloads to authenticated;
grant select on device_wake_payloads to farmiq_service;
grant select, insert on device_wake_payloads to farmiq_jobs;
grant update (payload_status, received_at, resent_received_at)
  on device_wake_payloads to farmiq_jobs;
