-- Roles of the cloud database. None owns a table, none bypasses row level security (C-76).
-- authenticated: people, through the console, which says whose rows they may see. farmiq_service: login of the services.
do $$
begin
  if not exists (select from pg_roles where rolname = 'authenticated') then
    create role authenticated nologin;
  end if;
  if not exists (select from pg_roles where rolname = 'farmiq_service') then
    create role farmiq_service nologin;
  end if;
end $$;

-- The console answers people as `authenticated`: it takes that role inside each transaction.
grant authenticated to farmiq_service;
grant usage on schema public to authenticated, farmiq_service;
