-- An admin gives a person of their company a new password for the next sign-in, and ends all their
-- sign-ins. Returns how many were open.
create or replace function fn_reset_person_password(person uuid, password_hash text) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  admin constant uuid := public.fn_acting_admin();
  ended bigint;
begin
  perform public.fn_check_password_hash(fn_reset_person_password.password_hash);
  perform public.fn_person_to_change(person, admin);
  update public.users u
  set password_hash = fn_reset_person_password.password_hash, must_change_password = true
  where u.user_id = person;
  with gone as (
    delete from public.sign_ins s where s.user_id = person returning s.expires_at
  )
  select count(*) filter (where g.expires_at > public.fn_now()) into ended from gone g;
  perform public.fn_audit_person(admin, 'password', person, 'reset');
  return ended;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_reset_person_password(uuid, text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_reset_person_password(uuid, text) from public;
grant execute on function fn_reset_person_password(uuid, text) to authenticated;
