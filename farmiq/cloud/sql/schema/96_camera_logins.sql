-- How cameras prove to the broker that they are themselves; the user is the MAC address. Only the
-- hash of the secret is kept. A camera that sent more than it may is not let in until paused_until;
-- pauses counts those in a row.
create table camera_logins (
  device_id uuid constraint camera_logins_pkey primary key,
  company_id uuid not null,
  secret_bcrypt text not null,
  made_by text not null,
  made_at timestamptz not null,
  revoked_at timestamptz,
  paused_until timestamptz,
  pauses integer not null default 0,
  constraint camera_logins_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id)
);
create index camera_logins_company_idx on camera_logins (company_id);

alter table camera_logins enable row level security;
alter table camera_logins force row level security;
create policy camera_logins_owner on camera_logins for all to current_user
  using (true) with check (true);
create policy camera_logins_service on camera_logins for all to farmiq_service
  using (true) with check (true);
create policy camera_logins_jobs on camera_logins for select to farmiq_jobs using (true);
grant select, insert, update on camera_logins to farmiq_service;
grant select (device_id, company_id, made_at, revoked_at, paused_until) on camera_logins
  to farmiq_jobs;
