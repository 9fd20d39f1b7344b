-- The companies that the signed-in person may choose: a super admin any, others their own.
create or replace function get_selectable_companies()
returns table (company_id uuid, tenant_id text, name text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select c.company_id, c.tenant_id, c.name
  from public.sign_ins s
  join public.users u on u.user_id = s.user_id
  join public.companies c on u.is_super_admin or c.company_id = u.company_id
  where s.token_hash = sha256(convert_to(current_setting('farmiq.sign_in', true), 'UTF8'))
    and s.expires_at > public.fn_now()
  order by lower(c.name), c.company_id
$$;
grant create on schema public to farmiq_jobs;
alter function get_selectable_companies() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function get_selectable_companies() from public;
grant execute on function get_selectable_companies() to authenticated;
