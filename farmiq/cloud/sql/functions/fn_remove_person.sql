-- An admin removes a person of their company, who is signed out everywhere. What they did stays under
-- their name.
create or replace function fn_remove_person(person uuid) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  admin constant uuid := public.fn_acting_admin();
begin
  if public.fn_person_to_change(person, admin) = 'admin' then
    perform public.fn_check_other_admin(person);
  end if;
  perform public.fn_audit_person(admin, 'remove', person, '');
  delete from public.users u where u.user_id = person;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_remove_person(uuid) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_remove_person(uuid) from public;
grant execute on function fn_remove_person(uuid) to authenticated;
