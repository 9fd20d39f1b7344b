-- Who is signed in at the edge's console, by the key they came with. The cookie has the token, this the
-- hash. tenant_id is the tenant that the sign-in looks at; a key of one tenant looks at that one.
create table console_sign_ins (
  token_sha256 bytea constraint console_sign_ins_pkey primary key,
  api_key_id uuid not null constraint console_sign_ins_api_key_fkey
    references api_keys (api_key_id) on delete cascade,
  tenant_id text,
  csrf_token text not null,
  created_at timestamptz not null,
  expires_at timestamptz not null
);
create index console_sign_ins_expires_at_idx on console_sign_ins (expires_at);
create index console_sign_ins_api_key_idx on console_sign_ins (api_key_id);
grant select, insert, update, delete on console_sign_ins to farmiq_edge;
