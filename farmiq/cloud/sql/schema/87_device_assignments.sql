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
