-- The count that a value of JSON is; null for what cannot be one of bytes or chunks.
create or replace function fn_jsonb_count(value jsonb) returns integer
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select n::integer from public.fn_jsonb_number(value) n
  where n between 0 and 2147483647 and n = trunc(n)
$$;
revoke execute on function fn_jsonb_count(jsonb) from public;
grant execute on function fn_jsonb_count(jsonb) to farmiq_jobs;
