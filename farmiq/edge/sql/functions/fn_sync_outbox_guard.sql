-- The payload never changes after it is written; updated_at always does.
create or replace function fn_sync_outbox_guard() returns trigger
language plpgsql
as $$
begin
  if new.payload_json is distinct from old.payload_json then
    raise exception 'sync_outbox.payload_json is immutable (event %)', old.id
      using errcode = 'integrity_constraint_violation';
  end if;
  new.updated_at := clock_timestamp();
  return new;
end $$;
