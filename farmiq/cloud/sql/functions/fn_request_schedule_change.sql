-- Asks that a camera wakes at other times, from its site's next midnight on (DB2-01). Earlier
-- requests are kept; of those that wait for one midnight the newest wins.
create or replace function fn_request_schedule_change(device_id uuid, new_wake_schedule_cron text)
returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  person constant uuid := public.fn_acting_technician();
  change_id constant uuid := public.fn_uuid_v7();
  effect jsonb;
begin
  -- The day that this change waits for must not open meanwhile.
  perform public.fn_lock_site(d.site_id) from public.devices d
  where d.device_id = fn_request_schedule_change.device_id and d.site_id is not null
    and d.company_id = public.get_active_company_id();
  effect := public.fn_schedule_change_effect(
    fn_request_schedule_change.device_id, fn_request_schedule_change.new_wake_schedule_cron);
  insert into public.device_schedule_changes (change_id, company_id, device_id,
    new_wake_schedule_cron, requested_at, requested_by, effective_date)
  values (change_id, public.get_active_company_id(), fn_request_schedule_change.device_id,
    fn_request_schedule_change.new_wake_schedule_cron, public.fn_calendar_now(), person,
    (effect ->> 'effective_date')::date);
  return jsonb_build_object('change_id', change_id) || effect;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_request_schedule_change(uuid, text) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_request_schedule_change(uuid, text) from public;
grant execute on function fn_request_schedule_change(uuid, text) to authenticated;
