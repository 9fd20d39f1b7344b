-- A site's days need a zone that has rules: a name of the IANA database, kept by the name under
-- which PostgreSQL means that zone, in the spelling of that database: others know no other one.
create or replace function fn_sites_timezone() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  asked constant text := public.fn_zone_name(timezone => new.timezone);
  spelled text;
begin
  -- Reading all names takes long; one that another site has was found among them before.
  if not exists (select from public.sites s where s.timezone = asked) then
    select n.name into spelled from pg_timezone_names n
    where lower(n.name) = lower(asked) and n.name <> 'Factory';
    if spelled is null then
      raise exception '"%" is no time zone of a place: name one such as Asia/Bangkok', asked
        using errcode = 'invalid_parameter_value';
    elsif spelled <> asked then
      raise exception '"%" is no time zone: it is spelled %', asked, spelled
        using errcode = 'invalid_parameter_value';
    end if;
  end if;
  new.timezone := asked;
  return new;
end $$;
revoke execute on function fn_sites_timezone() from public;
