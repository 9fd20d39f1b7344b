-- Notes when a site or a program becomes active again; a site also by leaving a program that is
-- not. Before it becomes inactive, or changes its program, the days that nobody opened yet are
-- opened: they were owed, and afterwards nobody could tell them from those that were not.
create or replace function fn_active_since() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  is_moved constant boolean := new.program_id <> old.program_id;
  -- Null for a program.
  moved constant uuid := to_jsonb(old) ->> 'site_id';
  site record;
begin
  if not new.is_active or is_moved then
    for site in
      select s.site_id from public.sites s
      join public.pilot_programs p on p.program_id = s.program_id
      where s.program_id = old.program_id and s.site_id = coalesce(moved, s.site_id)
        and s.is_active and p.is_active
        and exists (select from public.site_device_sessions d where d.site_id = s.site_id)
      order by s.site_id
    loop
      begin
        perform public.fn_midnight_session_opener(site.site_id);
      exception when others then
        raise warning 'days of site % were not opened: %', site.site_id, sqlerrm;
      end;
    end loop;
  end if;
  if new.is_active and (not old.is_active or is_moved and not (
    select p.is_active from public.pilot_programs p where p.program_id = old.program_id)) then
    new.active_since := public.fn_calendar_now();
  end if;
  return new;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_active_since() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_active_since() from public;
