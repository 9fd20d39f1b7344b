-- Notes in the audit log what somebody did to a person.
create or replace function fn_audit_person(changed_by uuid, action text, person uuid, detail text)
returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into public.user_actions (action_id, at, actor, action, company_id, user_id, email, detail)
  select public.fn_uuid_v7(), public.fn_now(), a.email, action, u.company_id, u.user_id, u.email,
    detail
  from public.users u, public.users a where u.user_id = person and a.user_id = changed_by
$$;
revoke execute on function fn_audit_person(uuid, text, uuid, text) from public;
grant execute on function fn_audit_person(uuid, text, uuid, text) to farmiq_jobs;
