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
