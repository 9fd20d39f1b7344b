-- Why a tenant pauses, in the words of the last failure.
alter table sync_state
  add column last_error_code text,
  add column last_error_message text;

-- What a key reaches: one tenant, and areas of the API; null is all of them.
alter table api_keys
  add column tenant_id text,
  add column areas text[];
