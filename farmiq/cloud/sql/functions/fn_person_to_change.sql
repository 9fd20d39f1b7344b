-- The role of a person of this company whom somebody wants to change or remove. Raises if there is no
-- such person, if it is themselves, or a super admin: only the owner of the database changes those.
create or replace function fn_person_to_change(person uuid, changed_by uuid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  found_person record;
begin
  select u.is_super_admin, m.role into found_person
  from public.users u left join public.memberships m
    on m.user_id = u.user_id and m.company_id = u.company_id
  where u.user_id = person and u.company_id = public.get_active_company_id();
  if not found then
    raise exception 'there is no such person' using errcode = 'no_data_found';
  elsif person = changed_by then
    raise exception 'nobody changes or removes themselves: ask another admin'
      using errcode = 'object_not_in_prerequisite_state';
  elsif found_person.is_super_admin then
    raise exception 'a super admin is changed with the command farmiq user'
      using errcode = 'object_not_in_prerequisite_state';
  end if;
  return found_person.role;
end $$;
revoke execute on function fn_person_to_change(uuid, uuid) from public;
grant execute on function fn_person_to_change(uuid, uuid) to farmiq_jobs;
