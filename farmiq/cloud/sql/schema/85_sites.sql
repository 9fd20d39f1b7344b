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
