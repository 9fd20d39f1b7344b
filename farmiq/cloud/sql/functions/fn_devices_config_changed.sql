-- A camera that is added, moved, retired or given another schedule while the day of its site is open
-- makes that day one whose settings changed (C-70).
create or replace function fn_devices_config_changed() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  sites uuid[] := array[new.site_id];
begin
  if tg_op = 'UPDATE' then
    if (new.site_id, new.is_active, new.wake_schedule_cron)
      is not distinct from (old.site_id, old.is_active, old.wake_schedule_cron) then
      return null;
    end if;
    sites := sites || old.site_id;
  end if;
  update public.site_device_sessions s set config_changed_flag = true
  where s.site_id = any (sites) and s.status <> 'locked' and not s.config_changed_flag
    and s.session_date >= public.fn_local_date(s.timezone, public.fn_calendar_now());
  return null;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_devices_config_changed() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_devices_config_changed() from public;
