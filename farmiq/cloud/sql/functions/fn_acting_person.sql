-- The person who is signed in, if they have one of these roles in the company they look at, or are a
-- super admin. Raises for everybody else, with who may.
create or replace function fn_acting_person(roles text[], who_may text) returns uuid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  person record;
begin
  select u.user_id,
    u.is_super_admin or exists (
      select from public.memberships m
      where m.user_id = u.user_id and m.company_id = public.get_active_company_id()
        and m.role = any (fn_acting_person.roles)) as may
  into person
  from public.sign_ins s join public.users u on u.user_id = s.user_id
  where s.token_hash = sha256(convert_to(current_setting('farmiq.sign_in', true), 'UTF8'))
    and s.expires_at > public.fn_now();
  if not found then
    raise exception 'nobody is signed in: call begin_session(token) first in this transaction'
      using errcode = 'invalid_authorization_specification';
  elsif not person.may then
    raise exception '%', fn_acting_person.who_may using errcode = 'insufficient_privilege';
  end if;
  return person.user_id;
end $$;
revoke execute on function fn_acting_person(text[], text) from public;
grant execute on function fn_acting_person(text[], text) to farmiq_jobs;
