-- The company whose rows this transaction may see; null (no rows) when there is none.
-- Both settings can be set by anybody, so neither is believed: the first must be the token of a
-- sign-in that has not expired, the second a company that this very person may choose.
-- The tables it reads have policies for its owner that do not call it (C-76: no recursion).
create or replace function get_active_company_id() returns uuid
language plpgsql stable security definer parallel safe
cost 1000  -- so that plans ask an index with it once, not every row
set search_path = pg_catalog, pg_temp
as $$
declare
  token text := current_setting('farmiq.sign_in', true);
  chosen text := current_setting('farmiq.company_id', true);
begin
  if coalesce(token, '') = ''
    or coalesce(chosen, '') !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
    return null;
  end if;
  return (
    select c.company_id
    from public.sign_ins s
    join public.users u on u.user_id = s.user_id
    join public.companies c on c.company_id = chosen::uuid
    where s.token_hash = sha256(convert_to(token, 'UTF8'))
      and s.expires_at > public.fn_now()
      and (u.is_super_admin or u.company_id = c.company_id));
end $$;
grant create on schema public to farmiq_jobs;
alter function get_active_company_id() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function get_active_company_id() from public;
grant execute on function get_active_company_id() to authenticated, farmiq_service;
