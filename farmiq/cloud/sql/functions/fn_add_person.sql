-- An admin adds a person to the company they look at, with a password for the first sign-in.
create or replace function fn_add_person(email text, role text, password_hash text) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  admin constant uuid := public.fn_acting_admin();
  person constant uuid := public.fn_uuid_v7();
  address constant text := lower(trim(fn_add_person.email));
begin
  perform public.fn_check_password_hash(fn_add_person.password_hash);
  if address is null or address !~ '^[^@\s]+@[^@\s]+$' or length(address) > 254 then
    raise exception 'this is not an e-mail address' using errcode = 'invalid_parameter_value';
  end if;
  begin
    insert into public.users (user_id, company_id, email, password_hash, must_change_password)
    values (person, public.get_active_company_id(), address, fn_add_person.password_hash, true);
  exception when unique_violation then
    raise exception 'somebody with this e-mail can sign in already' using errcode = 'unique_violation';
  end;
  insert into public.memberships (user_id, company_id, role)
  values (person, public.get_active_company_id(), fn_add_person.role);
  perform public.fn_audit_person(admin, 'add', person, fn_add_person.role);
  return person;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_add_person(text, text, text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_add_person(text, text, text) from public;
grant execute on function fn_add_person(text, text, text) to authenticated;
