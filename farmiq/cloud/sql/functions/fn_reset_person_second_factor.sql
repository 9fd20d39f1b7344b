-- An admin removes the second factor that a person of their company has lost, and ends all their
-- sign-ins. Returns whether there was one.
create or replace function fn_reset_person_second_factor(person uuid) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  admin constant uuid := public.fn_acting_admin();
begin
  perform public.fn_person_to_change(person, admin);
  delete from public.second_factors f where f.user_id = person;
  if not found then
    return false;
  end if;
  delete from public.sign_ins s where s.user_id = person;
  perform public.fn_audit_person(admin, 'reset_second_factor', person, '');
  return true;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_reset_person_second_factor(uuid) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_reset_person_second_factor(uuid) from public;
grant execute on function fn_reset_person_second_factor(uuid) to authenticated;
