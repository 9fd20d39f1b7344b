-- What a camera said of a wake is never changed, nor where the wake belongs.
create or replace function fn_device_wake_payloads_guard() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' then
    raise exception 'payload % cannot be deleted: every wake is accounted for', old.payload_id
      using errcode = 'restrict_violation';
  end if;
  if (old.payload_status, new.payload_status) not in (
    ('pending', 'pending'), ('pending', 'complete'), ('pending', 'failed'),
    ('failed', 'failed'), ('failed', 'complete'), ('complete', 'complete')) then
    raise exception 'payload % cannot go from % to %',
      old.payload_id, old.payload_status, new.payload_status using errcode = 'check_violation';
  end if;
  -- image_status follows payload_status, and a generated column is not yet made here.
  old.payload_status := new.payload_status;
  old.image_status := new.image_status;
  old.received_at := new.received_at;
  old.resent_received_at := new.resent_received_at;
  if new is distinct from old then
    raise exception 'payload % keeps what its camera said and where it belongs', old.payload_id
      using errcode = 'check_violation';
  end if;
  return new;
end $$;
revoke execute on function fn_device_wake_payloads_guard() from public;
