-- Chooses the company that this transaction looks at, and returns it. A regular user may only
-- choose their own; the refusal does not tell whether the other company exists.
create or replace function set_active_company_context(company_id uuid) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  may_choose_any boolean;
  chosen uuid;
begin
  select u.is_super_admin, u.company_id
  into may_choose_any, chosen
  from public.sign_ins s join public.users u on u.user_id = s.user_id
  where s.token_hash = sha256(convert_to(current_setting('farmiq.sign_in', true), 'UTF8'))
    and s.expires_at > public.fn_now();
  if may_choose_any is null then
    raise exception 'nobody is signed in: call begin_session(token) first in this transaction'
      using errcode = 'invalid_authorization_specification';
  end if;
  if not may_choose_any and chosen is distinct from set_active_company_context.company_id then
    raise exception 'you may look at your own company only'
      using errcode = 'insufficient_privilege';
  end if;
  select c.company_id into chosen
  from public.companies c where c.company_id = set_active_company_context.company_id;
  if chosen is null then
    raise exception 'there is no company %', set_active_company_context.company_id
      using errcode = 'no_data_found';
  end if;
  perform set_config('farmiq.company_id', chosen::text, true);
  return chosen;
end $$;
grant create on schema public to farmiq_jobs;
alter function set_active_company_context(uuid) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function set_active_company_context(uuid) from public;
grant execute on function set_active_company_context(uuid) to authenticated;
