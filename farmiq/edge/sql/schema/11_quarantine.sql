-- Messages that could not be taken, with every reason; one row per topic and content (C-82, C-107).
-- A topic may be longer than an index row: the key is a hash of topic and bytes.
create table quarantine (
  quarantine_id uuid constraint quarantine_pkey primary key,
  topic text not null,
  raw bytea not null,
  message_sha256 bytea not null constraint quarantine_message_key unique,
  raw_size_bytes int not null,
  reasons text[] not null constraint quarantine_has_reasons check (cardinality(reasons) > 0),
  received_count bigint not null default 1,
  first_received_at timestamptz not null default clock_timestamp(),
  last_received_at timestamptz not null default clock_timestamp(),
  kind text not null default 'format' constraint quarantine_kind_known
    check (kind in ('security', 'conflict', 'format', 'not_recorded', 'database', 'size')),
  -- The first reason up to its first value: what counts are grouped by.
  gist text not null default '',
  redriven_count int not null default 0,
  last_redriven_at timestamptz
);
create index quarantine_last_received_at_idx on quarantine (last_received_at);
-- What a tenant's topics brought, newest first: the console shows a key of one tenant no other's.
create index quarantine_tenant_idx on quarantine (split_part(topic, '/', 3), quarantine_id desc);
grant select, insert, update, delete on quarantine to farmiq_edge;
