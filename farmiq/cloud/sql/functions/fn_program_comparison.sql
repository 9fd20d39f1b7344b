-- Programs side by side, control against experimental (DB2-19). Wakes are summed per session
-- first: joined to sessions, a day would count once per wake (C-60). A company that is not the
-- caller's has no programs here.
create or replace function fn_program_comparison(company_id uuid, days integer default 30)
returns table (program_name text, program_type text, total_sessions bigint,
  avg_completed_wakes numeric, avg_temperature numeric, program_id uuid,
  expected_wake_count bigint, completed_wake_count bigint)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with days as (
    select s.session_id, s.program_id, s.expected_wake_count, s.completed_wake_count
    from public.site_device_sessions s
    where s.company_id = fn_program_comparison.company_id
      and s.session_date
        >= public.fn_local_date(s.timezone, public.fn_now()) - least(greatest(fn_program_comparison.days, 1), 3660)),
  woken as (
    select p.site_device_session_id as session_id, sum(p.temperature::numeric) as temperature,
      count(p.temperature) as readings
    from public.device_wake_payloads p
    where p.company_id = fn_program_comparison.company_id
      and p.site_device_session_id in (select d.session_id from days d)
    group by p.site_device_session_id)
  select g.program_name, g.program_type, count(*), round(avg(d.completed_wake_count), 2),
    round(sum(w.temperature) / nullif(sum(w.readings), 0), 2), g.program_id,
    sum(d.expected_wake_count), sum(d.completed_wake_count)
  from public.pilot_programs g
  join days d on d.program_id = g.program_id
  left join woken w on w.session_id = d.session_id
  where g.company_id = fn_program_comparison.company_id
  group by g.program_id, g.program_name, g.program_type
  order by g.program_type, g.program_name
$$;
revoke execute on function fn_program_comparison(uuid, integer) from public;
grant execute on function fn_program_comparison(uuid, integer) to authenticated, farmiq_service;
