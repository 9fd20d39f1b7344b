-- Which series have readings of which UTC day that the cloud will hear of by a bucket, and has not yet
-- (C-42): the bucket is owed, or its event is not acknowledged. Decided by series and day, so that a
-- reading costs no look at the outbox. It walks undelivered rows alone, as fn_telemetry_unsynced does;
-- a bucket that began up to a local day earlier may reach into the time that is asked for.
create or replace function fn_telemetry_held(starts_at timestamptz, ends_at timestamptz)
returns table (tenant_id text, device_id text, metric_type text, day timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with recursive priorities as (
    (select o.priority from public.sync_outbox o where o.status in ('pending', 'claimed')
     order by o.priority desc limit 1)
    union all
    select (select o.priority from public.sync_outbox o
      where o.status in ('pending', 'claimed') and o.priority < p.priority
      order by o.priority desc limit 1)
    from priorities p where p.priority is not null
  ), undelivered as (
    select o.tenant_id, o.device_id, o.occurred_at, o.payload_json
    from priorities p join public.sync_outbox o on o.priority = p.priority
    where o.status in ('pending', 'claimed') and o.event_type = 'telemetry.aggregated'
      and o.occurred_at > starts_at - interval '26 hours' and o.occurred_at < ends_at
    union all
    select o.tenant_id, o.device_id, o.occurred_at, o.payload_json
    from public.sync_outbox o
    where o.status in ('sending', 'dlq') and o.event_type = 'telemetry.aggregated'
      and o.occurred_at > starts_at - interval '26 hours' and o.occurred_at < ends_at
  ), buckets as (
    select u.tenant_id, u.device_id, u.payload_json->>'metric_type' as metric_type,
      u.occurred_at as began_at, (u.payload_json->>'bucket_end_at')::timestamptz as ended_at
    from undelivered u
    union all
    select a.tenant_id, a.device_id, a.metric_type, a.bucket_start_at, a.bucket_end_at
    from public.telemetry_agg a
    where a.owed and a.bucket_end_at > starts_at and a.bucket_start_at < ends_at
  )
  select distinct b.tenant_id, b.device_id, b.metric_type, d.day
  from buckets b, generate_series(date_trunc('day', b.began_at, 'UTC'),
    b.ended_at - interval '1 microsecond', interval '1 day') as d(day)
  where d.day < ends_at and d.day + interval '1 day' > starts_at
    and b.ended_at > starts_at
$$;
revoke execute on function fn_telemetry_held(timestamptz, timestamptz) from public;
grant execute on function fn_telemetry_held(timestamptz, timestamptz) to farmiq_edge;
