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
    'clock_suspect', 'unassigned_device', 'device_silent', 'counters_differ', 'device_flooding')),
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
-- Whether what an episode is about is over.
create index device_alerts_about_idx on device_alerts
  (company_id, (coalesce(device_id, site_id)), alert_type, resolved_at desc);

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
