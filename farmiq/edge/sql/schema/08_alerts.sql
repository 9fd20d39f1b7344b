-- What a person should look at: one open row per kind and subject, with a count of how often.
-- whole_edge: it names nothing of any tenant. reported_to are the tenants whose cloud was told of it
-- (edge.alert.opened), reported_severity is the most urgent one that they know.
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
  closed_by text,
  whole_edge boolean not null default false,
  reported_to text[] not null default '{}',
  reported_severity text
);
create unique index alerts_open_key on alerts (kind, subject) where closed_at is null;
create index alerts_raised_at_idx on alerts (raised_at desc);
grant select, insert, update, delete on alerts to farmiq_edge;
