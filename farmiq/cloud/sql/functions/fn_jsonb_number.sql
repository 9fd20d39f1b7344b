-- The number that a value of JSON is, also one written as plain text; null for everything else and
-- for what double precision cannot hold.
create or replace function fn_jsonb_number(value jsonb) returns double precision
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  number numeric;
begin
  if jsonb_typeof(value) = 'number'
    or value #>> '{}' ~ '^[-+]?[0-9]{1,30}(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?$' then
    number := (value #>> '{}')::numeric;
  end if;
  return case when number = 0 then 0
    when abs(number) between 1e-300 and 1e300 then number::double precision end;
end $$;
revoke execute on function fn_jsonb_number(jsonb) from public;
grant execute on function fn_jsonb_number(jsonb) to farmiq_service, farmiq_jobs;
