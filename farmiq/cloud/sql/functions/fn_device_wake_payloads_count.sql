-- Keeps a session's counters equal to a recount of its payloads, whoever writes them and in the
-- same transaction (C-67): by what this change adds to them, so that the thousandth wake of a day costs
-- as much as the first. The update waits for whoever has the session and adds to what they committed.
-- fn_alert_counters_differing recounts. Pages that show the company are told.
create or replace function fn_device_wake_payloads_count() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  is_new constant boolean := tg_op = 'INSERT';
  completed constant integer := (new.payload_status = 'complete')::integer
    - (not is_new and old.payload_status = 'complete')::integer;
  failed constant integer := (new.payload_status = 'failed')::integer
    - (not is_new and old.payload_status = 'failed')::integer;
  extra constant integer := (is_new and new.overage_flag)::integer;
begin
  update public.site_device_sessions s
  set completed_wake_count = s.completed_wake_count + completed,
    failed_wake_count = s.failed_wake_count + failed,
    extra_wake_count = s.extra_wake_count + extra,
    late_updates = s.late_updates + (s.status = 'locked')::integer
  where s.session_id = new.site_device_session_id
    and ((completed, failed, extra) <> (0, 0, 0) or s.status = 'locked');
  perform pg_notify('camera_changed', new.company_id::text);
  return null;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_device_wake_payloads_count() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_device_wake_payloads_count() from public;
