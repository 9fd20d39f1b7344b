-- Another zone while the day of a site is open makes that day one whose settings changed (C-70). No
-- day opens until this is committed: its date and its zone are one decision.
create or replace function fn_sites_config_changed() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.timezone = old.timezone then
    return null;
  end if;
  perform public.fn_lock_site(new.site_id);
  update public.site_device_sessions s set config_changed_flag = true
  where s.site_id = new.site_id and s.status <> 'locked' and not s.config_changed_flag
    and s.session_date >= public.fn_local_date(s.timezone, public.fn_calendar_now());
  return null;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_sites_config_changed() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_sites_config_changed() from public;
