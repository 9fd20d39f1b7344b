-- Battery cameras. A camera stays with its company; its site may change, and may be none yet.
-- wake_schedule_cron changes at midnight only, by the opener of the day (DS-12).
-- mac is twelve hexadecimal digits in upper case. Every company may register one, once: a claim is
-- proven when the camera was heard (proven_at), and one that is not retired is proven at a time.
-- speaks_of says whose chunks without a name are: the transfer announced last, null after a HELLO (the
-- one announced next), the nil UUID if that announcement was refused or a chunk contradicts it; spoke_of,
-- of what is tried again.
create table devices (
  device_id uuid constraint devices_pkey primary key,
  company_id uuid not null constraint devices_company_fkey references companies (company_id),
  site_id uuid,
  mac text not null constraint devices_mac_plain check (mac ~ '^[0-9A-F]{12}$'),
  device_name text not null constraint devices_name_said check (device_name <> ''),
  dialect text not null default 'standard' constraint devices_dialect_known
    check (dialect in ('standard', 'esp32cam')),
  wake_schedule_cron text,
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
  speaks_of uuid,
  spoke_of uuid,
  proven_at timestamptz,
  constraint devices_lineage_key unique (device_id, company_id),
  constraint devices_site_fkey foreign key (site_id, company_id)
    references sites (site_id, company_id)
);
-- An index by an expression is no key, so a new name does not lock out the camera's wakes.
create unique index devices_name_idx on devices (company_id, lower(device_name));
create unique index devices_company_mac_idx on devices (company_id, mac) where is_active;
create unique index devices_proven_mac_idx on devices (mac)
  where is_active and proven_at is not null;
create index devices_by_mac_idx on devices (mac);
create index devices_site_id_idx on devices (site_id);
create trigger devices_assignment after insert or update of site_id on devices
  for each row execute function fn_devices_assignment();
create trigger devices_cron_valid before insert or update of wake_schedule_cron on devices
  for each row execute function fn_devices_cron_valid();
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
  is_active, last_seen_at, battery_voltage, wifi_rssi, pending_count, speaks_of,
  spoke_of, proven_at) on devices to farmiq_service;
grant select on devices to farmiq_jobs;
grant update (wake_schedule_cron, last_seen_at, battery_voltage, wifi_rssi)
  on devices to farmiq_jobs;
