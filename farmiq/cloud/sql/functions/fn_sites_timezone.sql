-- A site's days need a zone that has rules: a name of the IANA database, kept by the name under
-- which PostgreSQL means that zone.
create or replace function fn_sites_timezone() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  new.timezone := public.fn_zone_name(timezone => new.timezone);
  return new;
end $$;
revoke execute on function fn_sites_timezone() from public;
