-- Tenants whose backlog drains, and the priority that their new events get meanwhile (C-92).
create table sync_drain (
  tenant_id text constraint sync_drain_pkey primary key,
  level int not null constraint sync_drain_level_positive check (level > 0),
  since timestamptz not null default now()
);
grant select, insert, update, delete on sync_drain to farmiq_edge;
