-- How long a row waits after this many failures: the formula of farmiq/plumbing/retry.py, without
-- jitter, since one job looks at all rows and nobody else is to be spread.
create or replace function fn_retry_delay(
  attempt integer, base_s double precision, cap_s double precision
) returns interval
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select least(
    fn_retry_delay.base_s * power(2, least(fn_retry_delay.attempt, 64)), fn_retry_delay.cap_s
  ) * interval '1 second'
$$;
revoke execute on function fn_retry_delay(integer, double precision, double precision) from public;
grant execute on function fn_retry_delay(integer, double precision, double precision)
  to farmiq_service;
