-- Public keys that edges sign their tokens with, one row for each tenant that a key speaks for.
-- key_id is the key's thumbprint (RFC 7638), so that nobody can choose another's.
-- public_x is the point of an Ed25519 key, or 'RSA.' and the modulus of an RSA key (e is 65537).
-- replaced_by is the key that the edge rotated to; there is only ever one.
-- A key is good until valid_until, if that is said, and never once revoked_at is.
create table edge_keys (
  key_id text not null,
  tenant_id text not null,
  edge_cluster_id text not null,
  public_x text not null,
  enrolled_at timestamptz not null,
  valid_until timestamptz,
  revoked_at timestamptz,
  replaced_by text,
  constraint edge_keys_pkey primary key (key_id, tenant_id)
);
create index edge_keys_edge_idx on edge_keys (tenant_id, edge_cluster_id);

alter table edge_keys enable row level security;
alter table edge_keys force row level security;
create policy "Users see in their company" on edge_keys for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy edge_keys_owner on edge_keys for all to current_user using (true) with check (true);
create policy edge_keys_service on edge_keys for all to farmiq_service
  using (true) with check (true);
grant select on edge_keys to authenticated;
grant select, insert, update on edge_keys to farmiq_service;
