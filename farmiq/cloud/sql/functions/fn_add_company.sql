-- A super admin adds a company; its first admin is added afterwards, in its own context.
create or replace function fn_add_company(company_name text, timezone text, tenant_id text)
returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  made constant uuid := public.fn_uuid_v7();
begin
  if not exists (
    select from public.sign_ins s join public.users u on u.user_id = s.user_id
    where s.token_hash = sha256(convert_to(current_setting('farmiq.sign_in', true), 'UTF8'))
      and s.expires_at > public.fn_now() and u.is_super_admin) then
    raise exception 'only super admins add companies' using errcode = 'insufficient_privilege';
  elsif fn_add_company.timezone is null or not exists (
    select from pg_timezone_names z where z.name = fn_add_company.timezone) then
    raise exception 'there is no such time zone' using errcode = 'invalid_parameter_value';
  end if;
  begin
    insert into public.companies (company_id, tenant_id, name, timezone)
    values (made, nullif(fn_add_company.tenant_id, ''), fn_add_company.company_name,
      fn_add_company.timezone);
  exception when unique_violation then
    raise exception 'there is a company of this name on the bus already'
      using errcode = 'unique_violation';
  end;
  return made;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_add_company(text, text, text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_add_company(text, text, text) from public;
grant execute on function fn_add_company(text, text, text) to authenticated;
