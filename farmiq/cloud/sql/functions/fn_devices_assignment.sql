-- Keeps device_assignments equal to where cameras are put. A camera's first place also holds for
-- images that it took before anybody registered it.
create or replace function fn_devices_assignment() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'UPDATE' and old.site_id is not distinct from new.site_id then
    return null;
  end if;
  update public.device_assignments a set ended_at = greatest(a.assigned_at, public.fn_calendar_now())
  where a.device_id = new.device_id and a.ended_at is null;
  if new.site_id is not null then
    -- Twice in one transaction is two instants, or the primary key would refuse the second.
    insert into public.device_assignments (device_id, company_id, site_id, assigned_at)
    select new.device_id, new.company_id, new.site_id,
      greatest(public.fn_calendar_now(), max(a.ended_at) + interval '1 microsecond')
    from public.device_assignments a where a.device_id = new.device_id;
  end if;
  return null;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_devices_assignment() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_devices_assignment() from public;
