-- Who changed what by hand, written in the transaction of the change. It is only ever added to;
-- fn_forget_audit deletes what is old.
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
