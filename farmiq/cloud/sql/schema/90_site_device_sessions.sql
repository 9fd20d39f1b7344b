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
grant select, insert, delete on site_device_sessions to farmiq_jobs;
grant update (completed_wake_count, failed_wake_count, extra_wake_count, status,
  config_changed_flag, locked_at, late_updates) on site_device_sessions to farmiq_jobs;
