-- A UUIDv7 of now: PostgreSQL has its own only since 18. Later calls of one millisecond are in no
-- order among themselves.
create or replace function fn_uuid_v7() returns uuid
language sql volatile parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select encode(
    set_byte(
      overlay(uuid_send(gen_random_uuid()) placing
        substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6),
      6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112), 'hex')::uuid
$$;
revoke execute on function fn_uuid_v7() from public;
grant execute on function fn_uuid_v7() to farmiq_service, farmiq_jobs;
