-- Battery cameras: programs, sites, cameras, and the accounts of every wake (004).

-- Programs of a company: what its sites are compared by, control against experimental.
-- active_since: when it was last made active again; days before that were not missed.
create table pilot_programs (
  program_id uuid constraint pilot_programs_pkey primary key,
  company_id uuid not null constraint pilot_programs_company_fkey references companies (company_id),
  program_name text not null constraint pilot_programs_name_said check (program_name <> ''),
  program_type text not null constraint pilot_programs_type_known
    check (program_type in ('control', 'experimental')),
  is_active boolean not null default true,
  created_at timestamptz not null default now(),
  active_since timestamptz,
  -- What other tables refer to, so that a row never points into another company.
  constraint pilot_programs_lineage_key unique (program_id, company_id)
);

-- An index by an expression is no key, so a new name does not lock out who refers to the row.
create unique index pilot_programs_name_idx on pilot_programs (company_id, lower(program_name));
create trigger pilot_programs_active_since before update of is_active on pilot_programs
  for each row execute function fn_active_since();

alter table pilot_programs enable row level security;
alter table pilot_programs force row level security;
create policy "Users see in their company" on pilot_programs for select to authenticated
  using (company_id = get_active_company_id());
create policy pilot_programs_owner on pilot_programs for all to current_user
  using (true) with check (true);
create policy pilot_programs_service on pilot_programs for all to farmiq_service
  using (true) with check (true);
create policy pilot_programs_jobs on pilot_programs for all to farmiq_jobs
  using (true) with check (true);
grant select on pilot_programs to authenticated;
grant select, insert on pilot_programs to farmiq_service;
grant update (program_name, program_type, is_active) on pilot_programs to farmiq_service;
grant select on pilot_programs to farmiq_jobs;

-- Sites: where cameras stand. Their days begin and end at midnight of their own time zone.
-- early_wake_snap_seconds: a wake that comes so shortly before midnight is the next day's (C-57).
-- active_since: when it was last made active again; days before that were not missed.
create table sites (
  site_id uuid constraint sites_pkey primary key,
  company_id uuid not null,
  program_id uuid not null,
  site_name text not null constraint sites_name_said check (site_name <> ''),
  timezone text not null,
  early_wake_snap_seconds integer not null default 0
    constraint sites_snap_small check (early_wake_snap_seconds between 0 and 300),
  is_active boolean not null default true,
  created_at timestamptz not null default now(),
  active_since timestamptz,
  constraint sites_lineage_key unique (site_id, company_id),
  constraint sites_program_fkey foreign key (program_id, company_id)
    references pilot_programs (program_id, company_id)
);
-- An index by an expression is no key, so a new name does not lock out the site's wakes.
create unique index sites_name_idx on sites (company_id, lower(site_name));
create index sites_program_id_idx on sites (program_id);
create trigger sites_timezone before insert or update of timezone on sites
  for each row execute function fn_sites_timezone();
create trigger sites_active_since before update of is_active, program_id on sites
  for each row execute function fn_active_since();
create trigger sites_config_changed after update of timezone on sites
  for each row execute function fn_sites_config_changed();

alter table sites enable row level security;
alter table sites force row level security;
create policy "Users see in their company" on sites for select to authenticated
  using (company_id = get_active_company_id());
create policy sites_owner on sites for all to current_user
  using (true) with check (true);
create policy sites_service on sites for all to farmiq_service
  using (true) with check (true);
create policy sites_jobs on sites for all to farmiq_jobs
  using (true) with check (true);
grant select on sites to authenticated;
grant select, insert on sites to farmiq_service;
grant update (program_id, site_name, timezone, early_wake_snap_seconds, is_active)
  on sites to farmiq_service;
grant select on sites to farmiq_jobs;

-- Battery cameras. A camera stays with its company; its site may change, and may be none yet.
-- wake_schedule_cron changes at midnight only, by the opener of the day (DS-12).
-- mac is twelve hexadecimal digits in upper case; one camera that is not retired has it.
create table devices (
  device_id uuid constraint devices_pkey primary key,
  company_id uuid not null constraint devices_company_fkey references companies (company_id),
  site_id uuid,
  mac text not null constraint devices_mac_plain check (mac ~ '^[0-9A-F]{12}$'),
  device_name text not null constraint devices_name_said check (device_name <> ''),
  dialect text not null default 'standard' constraint devices_dialect_known
    check (dialect in ('standard', 'esp32cam')),
  wake_schedule_cron text constraint devices_cron_valid
    check (fn_cron_problem(wake_schedule_cron) is null),
  slot_index integer constraint devices_slot_positive check (slot_index > 0),
  x_position double precision,
  y_position double precision,
  firmware text,
  is_active boolean not null default true,
  last_seen_at timestamptz,
  battery_voltage double precision,
  wifi_rssi double precision,
  pending_count integer,
  created_at timestamptz not null default now(),
  constraint devices_lineage_key unique (device_id, company_id),
  constraint devices_site_fkey foreign key (site_id, company_id)
    references sites (site_id, company_id)
);
-- An index by an expression is no key, so a new name does not lock out the camera's wakes.
create unique index devices_name_idx on devices (company_id, lower(device_name));
create unique index devices_mac_idx on devices (mac) where is_active;
create index devices_site_id_idx on devices (site_id);
create trigger devices_assignment after insert or update of site_id on devices
  for each row execute function fn_devices_assignment();
create trigger devices_config_changed
  after insert or update of site_id, is_active, wake_schedule_cron on devices
  for each row execute function fn_devices_config_changed();

alter table devices enable row level security;
alter table devices force row level security;
create policy "Users see in their company" on devices for select to authenticated
  using (company_id = get_active_company_id());
create policy devices_owner on devices for all to current_user
  using (true) with check (true);
create policy devices_service on devices for all to farmiq_service
  using (true) with check (true);
create policy devices_jobs on devices for all to farmiq_jobs
  using (true) with check (true);
grant select on devices to authenticated;
grant select, insert on devices to farmiq_service;
grant update (site_id, device_name, dialect, slot_index, x_position, y_position, firmware,
  is_active, last_seen_at, battery_voltage, wifi_rssi, pending_count) on devices to farmiq_service;
grant select on devices to farmiq_jobs;
grant update (wake_schedule_cron, last_seen_at, battery_voltage, wifi_rssi)
  on devices to farmiq_jobs;

-- Where a camera stood and when: an image that comes late belongs to the site of its own time
-- (C-73). Written by a trigger on devices.
create table device_assignments (
  device_id uuid not null,
  company_id uuid not null,
  site_id uuid not null,
  assigned_at timestamptz not null,
  ended_at timestamptz,
  constraint device_assignments_pkey primary key (device_id, assigned_at),
  constraint device_assignments_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id),
  constraint device_assignments_site_fkey foreign key (site_id, company_id)
    references sites (site_id, company_id),
  constraint device_assignments_ends_later check (ended_at >= assigned_at)
);
create unique index device_assignments_open_idx on device_assignments (device_id)
  where ended_at is null;
create index device_assignments_site_id_idx on device_assignments (site_id);

alter table device_assignments enable row level security;
alter table device_assignments force row level security;
create policy "Users see in their company" on device_assignments for select to authenticated
  using (company_id = get_active_company_id());
create policy device_assignments_owner on device_assignments for all to current_user
  using (true) with check (true);
create policy device_assignments_service on device_assignments for all to farmiq_service
  using (true) with check (true);
create policy device_assignments_jobs on device_assignments for all to farmiq_jobs
  using (true) with check (true);
grant select on device_assignments to authenticated;
grant select on device_assignments to farmiq_service;
grant select, insert on device_assignments to farmiq_jobs;
grant update (ended_at) on device_assignments to farmiq_jobs;

-- Requests to wake at other times. The newest request of a camera is applied when its site's next
-- day opens; those it overtakes are kept with superseded_at, those taken back with cancelled_at.
-- position orders requests of one moment.
create table device_schedule_changes (
  change_id uuid constraint device_schedule_changes_pkey primary key,
  company_id uuid not null,
  device_id uuid not null,
  new_wake_schedule_cron text not null constraint device_schedule_changes_cron_valid
    check (new_wake_schedule_cron <> '' and fn_cron_problem(new_wake_schedule_cron) is null),
  requested_at timestamptz not null,
  requested_by uuid,
  position bigint not null generated always as identity,
  effective_date date not null,
  applied_at timestamptz,
  applied_by_function text,
  previous_wake_schedule_cron text,
  superseded_at timestamptz,
  cancelled_at timestamptz,
  cancelled_by uuid,
  constraint device_schedule_changes_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id),
  constraint device_schedule_changes_one_end
    check (num_nonnulls(applied_at, superseded_at, cancelled_at) <= 1),
  constraint device_schedule_changes_applied_by
    check ((applied_at is null) = (applied_by_function is null))
);
create index device_schedule_changes_device_idx
  on device_schedule_changes (device_id, requested_at desc, position desc);
create index device_schedule_changes_waiting_idx
  on device_schedule_changes (device_id, effective_date)
  where applied_at is null and superseded_at is null and cancelled_at is null;
create trigger device_schedule_changes_guard before update or delete on device_schedule_changes
  for each row execute function fn_device_schedule_changes_guard();
create trigger device_schedule_changes_changed after insert or update on device_schedule_changes
  for each row execute function fn_camera_changed();

alter table device_schedule_changes enable row level security;
alter table device_schedule_changes force row level security;
create policy "Users see in their company" on device_schedule_changes for select to authenticated
  using (company_id = get_active_company_id());
create policy device_schedule_changes_owner on device_schedule_changes for all to current_user
  using (true) with check (true);
create policy device_schedule_changes_service on device_schedule_changes for all to farmiq_service
  using (true) with check (true);
create policy device_schedule_changes_jobs on device_schedule_changes for all to farmiq_jobs
  using (true) with check (true);
grant select on device_schedule_changes to authenticated;
grant select on device_schedule_changes to farmiq_service;
grant select, insert on device_schedule_changes to farmiq_jobs;
grant update (applied_at, applied_by_function, previous_wake_schedule_cron, superseded_at,
  cancelled_at, cancelled_by) on device_schedule_changes to farmiq_jobs;

-- A site's day: every wake captured between two midnights of its zone. Never "incomplete": how
-- complete it is, is computed. Only the functions of 004 write here; the counters are what a
-- recount of its payloads gives, kept so by a trigger on those.
-- late_updates counts what came after the lock (C-53). timezone is the one it was opened in.
create table site_device_sessions (
  session_id uuid constraint site_device_sessions_pkey primary key,
  company_id uuid not null,
  program_id uuid not null,
  site_id uuid not null,
  session_date date not null,
  timezone text not null,
  expected_wake_count integer not null
    constraint site_device_sessions_expected_positive check (expected_wake_count >= 0),
  completed_wake_count integer not null default 0
    constraint site_device_sessions_completed_positive check (completed_wake_count >= 0),
  failed_wake_count integer not null default 0
    constraint site_device_sessions_failed_positive check (failed_wake_count >= 0),
  extra_wake_count integer not null default 0
    constraint site_device_sessions_extra_positive check (extra_wake_count >= 0),
  status text not null default 'pending' constraint site_device_sessions_status_known
    check (status in ('pending', 'in_progress', 'locked')),
  config_changed_flag boolean not null default false,
  opened_at timestamptz not null,
  locked_at timestamptz,
  late_updates integer not null default 0,
  constraint site_device_sessions_site_date_key unique (site_id, session_date),
  constraint site_device_sessions_lineage_key
    unique (session_id, site_id, program_id, company_id),
  constraint site_device_sessions_program_fkey foreign key (program_id, company_id)
    references pilot_programs (program_id, company_id),
  constraint site_device_sessions_site_fkey foreign key (site_id, company_id)
    references sites (site_id, company_id),
  constraint site_device_sessions_locked_at_said
    check ((status = 'locked') = (locked_at is not null))
);
create index site_device_sessions_company_date_idx
  on site_device_sessions (company_id, session_date desc);
create index site_device_sessions_program_id_idx on site_device_sessions (program_id);
create index site_device_sessions_unlocked_idx on site_device_sessions (site_id, session_date)
  where status <> 'locked';
create trigger site_device_sessions_guard
  before insert or update or delete on site_device_sessions
  for each row execute function fn_site_device_sessions_guard();
create trigger site_device_sessions_changed after insert on site_device_sessions
  for each row execute function fn_camera_changed();

alter table site_device_sessions enable row level security;
alter table site_device_sessions force row level security;
create policy "Users see in their company" on site_device_sessions for select to authenticated
  using (company_id = get_active_company_id());
create policy site_device_sessions_owner on site_device_sessions for all to current_user
  using (true) with check (true);
create policy site_device_sessions_service on site_device_sessions for all to farmiq_service
  using (true) with check (true);
create policy site_device_sessions_jobs on site_device_sessions for all to farmiq_jobs
  using (true) with check (true);
grant select on site_device_sessions to authenticated;
grant select on site_device_sessions to farmiq_service;
grant select, insert on site_device_sessions to farmiq_jobs;
grant update (completed_wake_count, failed_wake_count, extra_wake_count, status,
  config_changed_flag, locked_at, late_updates) on site_device_sessions to farmiq_jobs;

-- The wakes that a day expects, as instants: written when the day opens and never after. A
-- session's expected_wake_count is the number of its rows here.
create table expected_wakes (
  session_id uuid not null constraint expected_wakes_session_fkey
    references site_device_sessions (session_id),
  device_id uuid not null,
  company_id uuid not null,
  wake_window_index integer not null,
  expected_at timestamptz not null,
  constraint expected_wakes_pkey primary key (session_id, device_id, wake_window_index),
  constraint expected_wakes_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id)
);
-- With company_id an index answers the policy once, not once per row.
create index expected_wakes_device_idx on expected_wakes (device_id, expected_at, company_id);
create index expected_wakes_company_idx on expected_wakes (company_id, session_id);
create trigger expected_wakes_guard before update or delete on expected_wakes
  for each row execute function fn_expected_wakes_guard();

alter table expected_wakes enable row level security;
alter table expected_wakes force row level security;
create policy "Users see in their company" on expected_wakes for select to authenticated
  using (company_id = get_active_company_id());
create policy expected_wakes_owner on expected_wakes for all to current_user
  using (true) with check (true);
create policy expected_wakes_service on expected_wakes for all to farmiq_service
  using (true) with check (true);
create policy expected_wakes_jobs on expected_wakes for all to farmiq_jobs
  using (true) with check (true);
grant select on expected_wakes to authenticated;
grant select on expected_wakes to farmiq_service;
grant select, insert on expected_wakes to farmiq_jobs;

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

-- What somebody should look at: one open alert per camera (or site), type and day (C-74).
create table device_alerts (
  alert_id uuid constraint device_alerts_pkey primary key,
  company_id uuid not null constraint device_alerts_company_fkey references companies (company_id),
  site_id uuid,
  device_id uuid,
  session_id uuid constraint device_alerts_session_fkey
    references site_device_sessions (session_id),
  image_id uuid constraint device_alerts_image_fkey references device_images (image_id),
  alert_type text not null constraint device_alerts_type_known check (alert_type in (
    'missed_wakes', 'high_failure_rate', 'low_battery', 'image_transmission_failed',
    'clock_suspect', 'unassigned_device', 'device_silent', 'counters_differ')),
  alert_date date not null,
  message text not null,
  details jsonb not null default '{}',
  created_at timestamptz not null,
  resolved_at timestamptz,
  constraint device_alerts_site_fkey foreign key (site_id, company_id)
    references sites (site_id, company_id),
  constraint device_alerts_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id),
  constraint device_alerts_about_something check (site_id is not null or device_id is not null)
);
-- Of one day at most one: a site's own has no camera, a camera without a site no site.
create unique index device_alerts_open_idx
  on device_alerts (company_id, device_id, (case when device_id is null then site_id end),
    alert_type, alert_date)
  nulls not distinct where resolved_at is null;
create index device_alerts_company_idx on device_alerts (company_id, created_at desc);

alter table device_alerts enable row level security;
alter table device_alerts force row level security;
create policy "Users see in their company" on device_alerts for select to authenticated
  using (company_id = get_active_company_id());
create policy device_alerts_owner on device_alerts for all to current_user
  using (true) with check (true);
create policy device_alerts_service on device_alerts for all to farmiq_service
  using (true) with check (true);
create policy device_alerts_jobs on device_alerts for all to farmiq_jobs
  using (true) with check (true);
grant select on device_alerts to authenticated;
grant select on device_alerts to farmiq_service;
grant update (resolved_at) on device_alerts to farmiq_service;
grant select, insert on device_alerts to farmiq_jobs;
grant update (message, details, image_id, resolved_at) on device_alerts to farmiq_jobs;

-- Who may ask for another schedule, and whose midnight counts for a camera without a site.
grant select (timezone) on companies to farmiq_jobs;
create policy memberships_jobs on memberships for select to farmiq_jobs using (true);
grant select (user_id, company_id, role) on memberships to farmiq_jobs;
