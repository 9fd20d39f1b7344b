-- A site's days need a zone that has rules: a name of the IANA data, not an offset or abbreviation.
create or replace function fn_sites_timezone() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from pg_timezone_names z where z.name = new.timezone) then
    raise exception 'no time zone is called %: give one such as Asia/Bangkok',
      quote_literal(new.timezone) using errcode = 'invalid_parameter_value';
  end if;
  return new;
end $$;
revoke execute on function fn_sites_timezone() from public;
