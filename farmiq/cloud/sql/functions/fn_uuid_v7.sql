-- A UUIDv7 of now: PostgreSQL has its own only since 18. Later calls of one millisecond are in no
-- order among themselves.
-- Its text is read when it is made, so that it needs no search_path and costs its caller no call.
create or replace function fn_uuid_v7() returns uuid
language sql volatile parallel safe
return encode(
  set_bit(
    set_bit(
      overlay(uuid_send(gen_random_uuid()) placing
        substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6),
      52, 1),
    53, 1), 'hex')::uuid;
revoke execute on function fn_uuid_v7() from public;
grant execute on function fn_uuid_v7() to farmiq_service, farmiq_jobs;
