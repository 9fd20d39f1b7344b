-- Why a tenant pauses, in the words of the last failure.
alter table sync_state
  add column last_error_code text,
  add column last_error_message text;
