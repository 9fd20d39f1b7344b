-- The person who is signed in, if they may change people of the company they look at: an admin of it,
-- or a super admin. Raises for everybody else. The people of a company are changed one after the other.
create or replace function fn_acting_admin() returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  person constant uuid := public.fn_acting_person(array['admin'], 'only admins change people');
begin
  perform pg_advisory_xact_lock(
    hashtextextended('people of ' || public.get_active_company_id()::text, 0));
  return person;
end $$;
revoke execute on function fn_acting_admin() from public;
grant execute on function fn_acting_admin() to farmiq_jobs;
