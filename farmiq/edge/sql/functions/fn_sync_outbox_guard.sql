-- The life of an outbox row (docs/operate/outbox.md, edge/sync/rules.py). Exactly these moves, whoever asks;
-- the payload never changes; updated_at always does.
create or replace function fn_sync_outbox_guard() returns trigger
language plpgsql
as $$
declare
  -- Never null: a comparison with null would be neither yes nor no, and let everything through.
  by_hand text := coalesce(current_setting('farmiq.outbox_by_hand', true), '');
begin
  if new.payload_json is distinct from old.payload_json then
    raise exception 'sync_outbox.payload_json is immutable (event %)', old.id
      using errcode = 'integrity_constraint_violation';
  end if;
  if not (
    old.status = 'pending' and new.status in ('pending', 'claimed', 'dlq')
    or old.status = 'claimed' and new.status in ('claimed', 'sending', 'acked', 'pending', 'dlq')
    -- sending → sending is a renewed lease: the same holder, for longer.
    or old.status = 'sending' and (new.status in ('acked', 'pending', 'dlq')
      or new.status = 'sending'
        and (new.claimed_by, new.claimed_at) is not distinct from (old.claimed_by, old.claimed_at))
    -- Out of the dlq only by hand (C-17), in a transaction that says so and writes the audit log.
    or old.status = 'dlq' and new.status = 'pending' and by_hand = 'redrive'
    or old.status = 'dlq' and new.status = 'failed' and by_hand = 'discard'
  ) then
    raise exception 'sync_outbox: % → % is not a move of event %', old.status, new.status, old.id
      using errcode = 'integrity_constraint_violation',
        hint = 'docs/operate/outbox.md draws the moves; farmiq outbox redrive brings a dlq row back';
  end if;
  if new.updated_at = old.updated_at then
    new.updated_at := clock_timestamp();
  end if;
  return new;
end $$;
