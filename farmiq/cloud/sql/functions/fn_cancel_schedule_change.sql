-- Takes back a change that was not applied yet; taken back twice is taken back. The refusal does not
-- tell whether another company has such a change.
create or replace function fn_cancel_schedule_change(change_id uuid) returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  person constant uuid := public.fn_acting_technician();
  change record;
begin
  perform public.fn_lock_site(d.site_id)
  from public.device_schedule_changes c join public.devices d on d.device_id = c.device_id
  where c.change_id = fn_cancel_schedule_change.change_id and d.site_id is not null
    and c.company_id = public.get_active_company_id();
  select c.device_id, c.effective_date, c.applied_at, c.superseded_at, c.cancelled_at into change
  from public.device_schedule_changes c
  where c.change_id = fn_cancel_schedule_change.change_id
    and c.company_id = public.get_active_company_id()
  for update;
  if not found then
    raise exception 'your company has no schedule change %',
      coalesce(fn_cancel_schedule_change.change_id::text, 'null') using errcode = 'no_data_found';
  elsif change.applied_at is not null or change.superseded_at is not null then
    raise exception 'schedule change % was % and stays so: request a new change',
      fn_cancel_schedule_change.change_id,
      case when change.applied_at is null then 'overtaken by a newer request' else 'applied' end
      using errcode = 'object_not_in_prerequisite_state';
  elsif change.cancelled_at is null and exists (
    -- Opened before its midnight for a wake whose clock is ahead; what it expects stays.
    select from public.devices d
    join public.site_device_sessions s on s.site_id = d.site_id
    join public.expected_wakes e on e.session_id = s.session_id and e.device_id = d.device_id
    where d.device_id = change.device_id and s.session_date >= change.effective_date) then
    raise exception 'the day of schedule change % is open already: request a new change',
      fn_cancel_schedule_change.change_id using errcode = 'object_not_in_prerequisite_state';
  end if;
  update public.device_schedule_changes c
  set cancelled_at = public.fn_calendar_now(), cancelled_by = person
  where c.change_id = fn_cancel_schedule_change.change_id and c.cancelled_at is null;
  return jsonb_build_object('change_id', fn_cancel_schedule_change.change_id,
    'cancelled_at', coalesce(change.cancelled_at, public.fn_calendar_now()));
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_cancel_schedule_change(uuid) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_cancel_schedule_change(uuid) from public;
grant execute on function fn_cancel_schedule_change(uuid) to authenticated;
