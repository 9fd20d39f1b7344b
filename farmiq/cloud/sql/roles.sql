-- Roles of the cloud database. None owns a table, none bypasses row level security (C-76).
-- authenticated: people, through the console and in psql. farmiq_service: login of the services.
-- farmiq_jobs: nobody's login; owns the functions that look further than their caller may.
do $$
declare
  name text;
begin
  foreach name in array array['authenticated', 'farmiq_service', 'farmiq_jobs'] loop
    if not exists (select from pg_roles r where r.rolname = name) then
      begin
        execute format('create role %I nologin', name);
      exception when duplicate_object then
        null;  -- Roles are the server's: another database of it was quicker.
      end;
    end if;
  end loop;
  -- The console answers people as `authenticated`: it takes that role inside each transaction.
  if not pg_has_role('farmiq_service', 'authenticated', 'member') then
    grant authenticated to farmiq_service;
  end if;
  -- Whoever migrates hands functions to farmiq_jobs, which takes a member or a superuser.
  if not pg_has_role(current_user, 'farmiq_jobs', 'usage') then
    execute format('grant farmiq_jobs to %I', current_user);
  end if;
end $$;

-- Databases older than PostgreSQL 15 let everybody make things here.
revoke create on schema public from public;
grant usage on schema public to authenticated, farmiq_service, farmiq_jobs;
