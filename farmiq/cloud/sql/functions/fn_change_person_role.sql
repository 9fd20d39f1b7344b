-- An admin gives a person of their company another role. Returns whether that changed anything.
create or replace function fn_change_person_role(person uuid, role text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  admin constant uuid := public.fn_acting_admin();
  before constant text := public.fn_person_to_change(person, admin);
begin
  if before = fn_change_person_role.role then
    return false;
  end if;
  if before = 'admin' then
    perform public.fn_check_other_admin(person);
  end if;
  insert into public.memberships as m (user_id, company_id, role)
  values (person, public.get_active_company_id(), fn_change_person_role.role)
  on conflict on constraint memberships_pkey do update set role = excluded.role;
  perform public.fn_audit_person(admin, 'change', person, fn_change_person_role.role);
  return true;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_change_person_role(uuid, text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_change_person_role(uuid, text) from public;
grant execute on function fn_change_person_role(uuid, text) to authenticated;
