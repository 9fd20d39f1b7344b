-- What is still owed is never deleted, and what was never delivered only after it was archived (C-16).
create or replace function fn_sync_outbox_keep() returns trigger
language plpgsql
as $$
begin
  if old.status = 'acked' then
    return old;
  end if;
  if old.status in ('dlq', 'failed')
    and exists (select from public.sync_archived a where a.event_id = old.id) then
    return old;
  end if;
  raise exception 'sync_outbox: event % is % and must not be deleted', old.id, old.status
    using errcode = 'integrity_constraint_violation',
      hint = 'only acked rows go, and dlq or failed ones that are in an archive';
end $$;
