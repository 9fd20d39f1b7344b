-- Says who looks, for this transaction: the token that signing in gave. Returns the user.
-- It begins in the company that the sign-in has chosen; a regular user's is always their own.
-- The setting is only a claim: get_active_company_id() checks it again for every statement.
create or replace function begin_session(token text) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  found_user uuid;
  chosen uuid;
begin
  select s.user_id, case when u.is_super_admin then s.company_id else u.company_id end
  into found_user, chosen
  from public.sign_ins s join public.users u on u.user_id = s.user_id
  where s.token_hash = sha256(convert_to(begin_session.token, 'UTF8'))
    and s.expires_at > public.fn_now();
  if found_user is null then
    raise exception 'nobody is signed in with this token: sign in again'
      using errcode = 'invalid_authorization_specification';
  end if;
  perform set_config('farmiq.sign_in', begin_session.token, true);
  perform public.set_active_company_context(company_id => chosen);
  return found_user;
end $$;
grant create on schema public to farmiq_jobs;
alter function begin_session(text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function begin_session(text) from public;
grant execute on function begin_session(text) to authenticated;
