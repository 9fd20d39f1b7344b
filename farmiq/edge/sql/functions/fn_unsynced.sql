-- Whether the cloud has not got an event: it is owed still, or it left the outbox undelivered (C-42).
create or replace function fn_unsynced(event uuid) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (select from public.sync_outbox o
      where o.id = event and o.status not in ('acked', 'failed'))
    or exists (select from public.sync_archived a where a.event_id = event)
$$;
revoke execute on function fn_unsynced(uuid) from public;
grant execute on function fn_unsynced(uuid) to farmiq_edge;
