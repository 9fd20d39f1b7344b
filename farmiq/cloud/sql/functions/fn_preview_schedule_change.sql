-- What fn_request_schedule_change would do, without doing it (DB2-02). Everybody of the company may
-- ask. dst_note is there only if a day until then, or the first of the change, has not 24 hours.
create or replace function fn_preview_schedule_change(device_id uuid, new_wake_schedule_cron text)
returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return public.fn_schedule_change_effect(device_id, new_wake_schedule_cron);
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_preview_schedule_change(uuid, text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_preview_schedule_change(uuid, text) from public;
grant execute on function fn_preview_schedule_change(uuid, text) to authenticated;
