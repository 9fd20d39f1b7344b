-- A UUIDv7 for rows that a statement makes by itself (C-97): milliseconds, version, then chance.
create or replace function fn_uuid_v7() returns uuid
language sql volatile parallel safe
as $$
  select (
    lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
    || right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid
$$;
