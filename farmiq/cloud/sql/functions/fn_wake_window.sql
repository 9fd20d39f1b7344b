-- The expected wake that one at this instant is, or why it is none of them (C-63): the nearest, of
-- two equally near the earlier, at most an hour away and not taken by another wake. Agrees with
-- fn_infer_wake_window_index, but by what the day was opened with.
create or replace function fn_wake_window(
  session_id uuid, device_id uuid, at timestamptz, out wake_window_index integer,
  out overage_reason text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select e.wake_window_index,
    case when n.away > interval '3600 seconds' then 'off_schedule'
      when exists (
        select from public.device_wake_payloads p
        where p.site_device_session_id = fn_wake_window.session_id
          and p.device_id = fn_wake_window.device_id
          and p.wake_window_index = e.wake_window_index and not p.overage_flag)
      then 'bucket_taken' end
  into fn_wake_window.wake_window_index, fn_wake_window.overage_reason
  from public.expected_wakes e,
    lateral (select greatest(e.expected_at - fn_wake_window.at,
      fn_wake_window.at - e.expected_at)) n(away)
  where e.session_id = fn_wake_window.session_id and e.device_id = fn_wake_window.device_id
  order by n.away, e.expected_at
  limit 1;
  if not found then
    fn_wake_window.overage_reason := 'no_schedule';
  end if;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_wake_window(uuid, uuid, timestamptz) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_wake_window(uuid, uuid, timestamptz) from public;
