-- The last copy of what the cloud registers for a tenant of this edge (C-114), whole and as it came.
-- Only edge-sync-forwarder writes it; the edge works with it while the cloud is away.
create table cloud_contexts (
  tenant_id text constraint cloud_contexts_pkey primary key,
  etag text not null,
  content jsonb not null,
  changed_at timestamptz not null,
  checked_at timestamptz not null
);
grant select, insert, update, delete on cloud_contexts to farmiq_edge;
