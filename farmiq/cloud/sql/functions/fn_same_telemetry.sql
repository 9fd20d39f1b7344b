-- Whether a camera said the same twice. That an image waited meanwhile is no difference.
create or replace function fn_same_telemetry(one jsonb, other jsonb) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case when jsonb_typeof(one) = 'object' and jsonb_typeof(other) = 'object'
    then one - 'pending' = other - 'pending' else one = other end
$$;
revoke execute on function fn_same_telemetry(jsonb, jsonb) from public;
grant execute on function fn_same_telemetry(jsonb, jsonb) to farmiq_jobs;
