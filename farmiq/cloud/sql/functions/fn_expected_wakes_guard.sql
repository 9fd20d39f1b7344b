-- What a day expects is written when it opens and never after.
create or replace function fn_expected_wakes_guard() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'session % keeps the wakes that it was opened with', old.session_id
    using errcode = 'restrict_violation';
end $$;
revoke execute on function fn_expected_wakes_guard() from public;
