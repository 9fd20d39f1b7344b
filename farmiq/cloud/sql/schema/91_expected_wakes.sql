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
grant select, insert, delete on expected_wakes to farmiq_jobs;
