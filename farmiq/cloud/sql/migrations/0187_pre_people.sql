-- Admins of a company add, change and remove its people on the console, by functions that belong to
-- farmiq_jobs: it may do so, but not to super admins. Technicians invite edges there.
alter table users add column must_change_password boolean not null default false;
create policy users_jobs_add on users for insert to farmiq_jobs with check (not is_super_admin);
create policy users_jobs_change on users for update to farmiq_jobs
  using (not is_super_admin) with check (not is_super_admin);
create policy users_jobs_remove on users for delete to farmiq_jobs using (not is_super_admin);
grant select (must_change_password) on users to authenticated;
grant select (email) on users to farmiq_jobs;
grant insert (user_id, company_id, email, password_hash, must_change_password) on users to farmiq_jobs;
grant update (password_hash, must_change_password) on users to farmiq_jobs;
grant delete on users to farmiq_jobs;
create policy memberships_jobs_add on memberships for insert to farmiq_jobs with check (true);
create policy memberships_jobs_change on memberships for update to farmiq_jobs
  using (true) with check (true);
grant insert (user_id, company_id, role), update (role) on memberships to farmiq_jobs;
create policy user_actions_jobs on user_actions for insert to farmiq_jobs with check (true);
grant insert (action_id, at, actor, action, company_id, user_id, email, detail) on user_actions
  to farmiq_jobs;
create policy sign_ins_jobs_end on sign_ins for delete to farmiq_jobs using (true);
grant delete on sign_ins to farmiq_jobs;
grant insert on edge_invites to farmiq_service;
