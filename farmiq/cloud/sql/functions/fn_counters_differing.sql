-- Sessions whose counters are not what a recount of their payloads gives (C-67): there are none.
create or replace function fn_counters_differing()
returns table (session_id uuid, company_id uuid, site_id uuid, session_date date, counted jsonb,
  recounted jsonb)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select s.session_id, s.company_id, s.site_id, s.session_date, c.counters, r.counters
  from public.site_device_sessions s
  left join (
    select p.site_device_session_id,
      count(*) filter (where p.payload_status = 'complete') as completed,
      count(*) filter (where p.payload_status = 'failed') as failed,
      count(*) filter (where p.overage_flag) as extra
    from public.device_wake_payloads p group by 1) p on p.site_device_session_id = s.session_id
  left join (
    select e.session_id, count(*) as expected from public.expected_wakes e group by 1) e
    on e.session_id = s.session_id,
  lateral (select jsonb_build_object('expected', s.expected_wake_count,
    'completed', s.completed_wake_count, 'failed', s.failed_wake_count,
    'extra', s.extra_wake_count)) c(counters),
  lateral (select jsonb_build_object('expected', coalesce(e.expected, 0),
    'completed', coalesce(p.completed, 0), 'failed', coalesce(p.failed, 0),
    'extra', coalesce(p.extra, 0))) r(counters)
  where c.counters <> r.counters
  order by s.session_date, s.session_id
$$;
revoke execute on function fn_counters_differing() from public;
grant execute on function fn_counters_differing() to farmiq_service, farmiq_jobs;
