-- Which events were taken lately: a bounded cache, not an audit log (DD-07).
create table ingress_dedupe (
  tenant_id text not null,
  event_id uuid not null,
  first_seen_at timestamptz not null default now(),
  content_hash bytea not null,
  constraint ingress_dedupe_tenant_event_key unique (tenant_id, event_id)
);
create index ingress_dedupe_first_seen_at_idx on ingress_dedupe (first_seen_at asc);
grant select, insert, delete on ingress_dedupe to farmiq_edge;
