-- Keeps a session's counters equal to a recount of its payloads, whoever writes them and in the
-- same transaction (C-67). The lock comes first: the recount then sees what others committed. Pages
-- that show the company are told.
create or replace function fn_device_wake_payloads_count() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from public.site_device_sessions s
  where s.session_id = new.site_device_session_id for no key update;
  update public.site_device_sessions s
  set completed_wake_count = c.completed, failed_wake_count = c.failed, extra_wake_count = c.extra,
    late_updates = s.late_updates + (s.status = 'locked')::integer
  from (
    select count(*) filter (where p.payload_status = 'complete') as completed,
      count(*) filter (where p.payload_status = 'failed') as failed,
      count(*) filter (where p.overage_flag) as extra
    from public.device_wake_payloads p
    where p.site_device_session_id = new.site_device_session_id) c
  where s.session_id = new.site_device_session_id;
  perform pg_notify('camera_changed', new.company_id::text);
  return null;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_device_wake_payloads_count() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_device_wake_payloads_count() from public;
