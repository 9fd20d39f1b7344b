-- One-time codes with which an edge registers its key. Only the code's hash is kept.
-- A code has one row for each tenant that the edge will speak for.
create table edge_invites (
  code_hash bytea not null,
  tenant_id text not null,
  edge_cluster_id text not null,
  made_by text not null,
  made_at timestamptz not null,
  expires_at timestamptz not null,
  used_at timestamptz,
  key_id text,
  constraint edge_invites_pkey primary key (code_hash, tenant_id),
  constraint edge_invites_used_by_a_key check ((used_at is null) = (key_id is null))
);

alter table edge_invites enable row level security;
alter table edge_invites force row level security;
create policy edge_invites_owner on edge_invites for all to current_user
  using (true) with check (true);
create policy edge_invites_service on edge_invites for all to farmiq_service
  using (true) with check (true);
grant select, insert, update on edge_invites to farmiq_service;
