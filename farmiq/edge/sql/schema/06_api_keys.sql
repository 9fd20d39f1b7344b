-- Who may call the edge's HTTP API. Keys are random and long, so a plain hash of one is enough.
-- tenant_id and areas (/api/v1/{area}/…) are what a key reaches; null is all of them. With pin_bcrypt its
-- owner signs in at the console with the key's name and a short PIN.
create table api_keys (
  api_key_id uuid constraint api_keys_pkey primary key,
  name text not null constraint api_keys_name_key unique,
  role text not null constraint api_keys_role_known
    check (role in ('viewer', 'operator', 'admin')),
  key_sha256 bytea not null constraint api_keys_key_sha256_key unique,
  created_at timestamptz not null default now(),
  revoked_at timestamptz,
  tenant_id text,
  areas text[],
  pin_bcrypt text
);
-- The page of keys adds and revokes; a key that is there is never changed by it.
grant select, insert on api_keys to farmiq_edge;
grant update (revoked_at) on api_keys to farmiq_edge;
