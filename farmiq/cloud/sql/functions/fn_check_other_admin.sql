-- Raises unless the company has an admin besides this person: it must not be left without one.
create or replace function fn_check_other_admin(person uuid) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (
    select from public.memberships m join public.users u on u.user_id = m.user_id
    where m.company_id = public.get_active_company_id() and u.company_id = m.company_id
      and m.role = 'admin' and m.user_id <> person) then
    raise exception 'this is the last admin: make somebody else an admin first'
      using errcode = 'object_not_in_prerequisite_state';
  end if;
end $$;
revoke execute on function fn_check_other_admin(uuid) from public;
grant execute on function fn_check_other_admin(uuid) to farmiq_jobs;
