-- Whether the cloud has not acknowledged some reading of this time, or a bucket that tells it (C-42).
-- It steps from priority to
-- priority through the index of the claim, so a long backlog of newer events costs nothing.
create or replace function fn_telemetry_unsynced(starts_at timestamptz, ends_at timestamptz)
returns boolean
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
  )
  select exists (select from priorities p
      where p.priority is not null and exists (select from public.sync_outbox o
        where o.status in ('pending', 'claimed') and o.priority = p.priority
          and o.occurred_at >= starts_at and o.occurred_at < ends_at
          and o.event_type = 'telemetry.ingested'))
    or exists (select from public.sync_outbox o
      where o.status in ('sending', 'dlq')
        and o.occurred_at >= starts_at and o.occurred_at < ends_at
        and o.event_type = 'telemetry.ingested')
    or exists (select from public.fn_telemetry_held(starts_at, ends_at))
$$;
revoke execute on function fn_telemetry_unsynced(timestamptz, timestamptz) from public;
grant execute on function fn_telemetry_unsynced(timestamptz, timestamptz) to farmiq_edge;
