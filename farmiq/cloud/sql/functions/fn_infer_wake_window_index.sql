-- Which wake of its day a picture belongs to (FN-11, C-63, C-97): the nearest of the local date of
-- captured_at, of two equally near the earlier; more than an hour away it is an extra wake. A day
-- without wakes has no index, and every wake of it is extra.
create or replace function fn_infer_wake_window_index(
  captured_at timestamptz, cron_expression text, timezone text default 'UTC')
returns table (wake_index integer, is_overage boolean)
language plpgsql stable parallel safe
rows 1
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
  if captured_at is null or not isfinite(captured_at) then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('a wake at %s has no window', coalesce(captured_at::text, 'null'));
  elsif coalesce(btrim(cron_expression, E' \t'), '') <> '' then
    return query
      select w.wake_window_index, a.away > interval '3600 seconds'
      from public.fn_wake_instants(cron_expression, timezone,
          (captured_at at time zone public.fn_zone_name(timezone))::date) w,
        lateral (select greatest(captured_at - w.expected_at, w.expected_at - captured_at)) a(away)
      order by a.away, w.expected_at
      limit 1;
  end if;
  if not found then
    return query select null::integer, true;
  end if;
end $$;
revoke execute on function fn_infer_wake_window_index(timestamptz, text, text) from public;
grant execute on function fn_infer_wake_window_index(timestamptz, text, text)
  to authenticated, farmiq_service, farmiq_jobs;
