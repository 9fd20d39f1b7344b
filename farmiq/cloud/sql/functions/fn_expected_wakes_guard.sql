-- What a day expects is written when it opens and never after; it goes with a day that a wrong clock
-- opened and that has not begun.
create or replace function fn_expected_wakes_guard() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' and exists (
    select from public.site_device_sessions s
    where s.session_id = old.session_id and public.fn_is_early(s.timezone, s.session_date)) then
    return old;
  end if;
  raise exception 'session % keeps the wakes that it was opened with', old.session_id
    using errcode = 'restrict_violation';
end $$;
revoke execute on function fn_expected_wakes_guard() from public;
