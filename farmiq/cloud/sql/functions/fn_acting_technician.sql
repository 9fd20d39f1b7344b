-- The person who is signed in, if they may change cameras of the company they look at: a technician
-- or admin of it, or a super admin. Raises for everybody else.
create or replace function fn_acting_technician() returns uuid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select public.fn_acting_person(array['technician', 'admin'],
    'only technicians and admins change the schedules of cameras')
$$;
revoke execute on function fn_acting_technician() from public;
grant execute on function fn_acting_technician() to farmiq_jobs;
