-- What every part of the edge needs: keys of its API, an audit log, alerts, the loss ledger.

-- Who may call the edge's HTTP API. Keys are random and long, so a plain hash of one is enough.
create table api_keys (
  api_key_id uuid constraint api_keys_pkey primary key,
  name text not null constraint api_keys_name_key unique,
  role text not null constraint api_keys_role_known
    check (role in ('viewer', 'operator', 'admin')),
  key_sha256 bytea not null constraint api_keys_key_sha256_key unique,
  created_at timestamptz not null default now(),
  revoked_at timestamptz
);
grant select on api_keys to farmiq_edge;

-- Who changed what by hand, written in the transaction of the change. It is only ever added to.
create table audit_log (
  audit_id uuid constraint audit_log_pkey primary key,
  at timestamptz not null default now(),
  actor text not null,
  action text not null,
  subject text not null,
  detail jsonb not null default '{}'
);
create index audit_log_at_idx on audit_log (at desc);
grant select, insert on audit_log to farmiq_edge;

-- What a person should look at: one open row per kind and subject, with a count of how often.
create table alerts (
  alert_id uuid constraint alerts_pkey primary key,
  kind text not null,
  subject text not null,
  severity text not null constraint alerts_severity_known
    check (severity in ('info', 'warning', 'security', 'critical')),
  message text not null,
  seen_count bigint not null default 1,
  raised_at timestamptz not null default now(),
  last_seen_at timestamptz not null default now(),
  closed_at timestamptz,
  closed_by text
);
create unique index alerts_open_key on alerts (kind, subject) where closed_at is null;
create index alerts_raised_at_idx on alerts (raised_at desc);
grant select, insert, update, delete on alerts to farmiq_edge;

-- Whatever was dropped on purpose, by a device or by this edge (C-83): the sum of these rows is the
-- sum of what is missing. Each row is owed to the cloud as device.buffer.dropped under the same id.
create table loss_ledger (
  loss_id uuid constraint loss_ledger_pkey primary key,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  class text not null,
  count bigint not null constraint loss_ledger_count_positive check (count >= 0),
  first_seq bigint not null,
  last_seq bigint not null,
  reason text not null,
  occurred_at timestamptz not null,
  recorded_at timestamptz not null default now()
);
create index loss_ledger_recorded_at_idx on loss_ledger (recorded_at desc);
grant select, insert on loss_ledger to farmiq_edge;
