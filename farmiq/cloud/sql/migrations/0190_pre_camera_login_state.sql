-- The page of a camera shows whether it has a login: fn_camera_login reads when it was made, revoked
-- or held out, and never the secret's hash.
create policy camera_logins_jobs on camera_logins for select to farmiq_jobs using (true);
grant select (device_id, company_id, made_at, revoked_at, paused_until) on camera_logins
  to farmiq_jobs;
