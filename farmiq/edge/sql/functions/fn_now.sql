-- The time that decides (C-101): now(), moved only where the database's owner says so in test_clock.
-- A table and not a setting: anybody can set a setting in their own session.
create or replace function fn_now() returns timestamptz
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select now() + coalesce((select t.ahead from public.test_clock t), interval '0')
$$;
