-- Edges that enrol themselves: invitations, keys, what was done to them, what they last said.

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
grant select, update on edge_invites to farmiq_service;

-- Public keys that edges sign their tokens with, one row for each tenant that a key speaks for.
-- key_id is the key's thumbprint (RFC 7638), so that nobody can choose another's.
-- A key is good until valid_until, if that is said, and never once revoked_at is.
create table edge_keys (
  key_id text not null,
  tenant_id text not null,
  edge_cluster_id text not null,
  public_x text not null,
  enrolled_at timestamptz not null,
  valid_until timestamptz,
  revoked_at timestamptz,
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

-- Who invited, enrolled, rotated or revoked which edge. It is only ever added to.
create table edge_actions (
  action_id uuid constraint edge_actions_pkey primary key,
  at timestamptz not null,
  actor text not null,
  action text not null constraint edge_actions_action_known
    check (action in ('invite', 'enroll', 'rotate', 'revoke')),
  tenant_id text not null,
  edge_cluster_id text not null,
  key_id text
);
create index edge_actions_tenant_idx on edge_actions (tenant_id, at desc);

alter table edge_actions enable row level security;
alter table edge_actions force row level security;
create policy "Users see in their company" on edge_actions for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy edge_actions_owner on edge_actions for all to current_user
  using (true) with check (true);
create policy edge_actions_service on edge_actions for all to farmiq_service
  using (true) with check (true);
grant select on edge_actions to authenticated;
grant select, insert on edge_actions to farmiq_service;

-- What each edge last said of itself, for each tenant that it speaks for.
-- clock_offset_s is how far its clock is ahead of ours, the way included.
create table edge_heartbeats (
  tenant_id text not null,
  edge_cluster_id text not null,
  received_at timestamptz not null,
  sent_at timestamptz not null,
  clock_offset_s double precision not null,
  versions jsonb not null,
  waiting bigint not null,
  oldest_s double precision not null,
  dlq bigint not null,
  disk_percent double precision not null,
  constraint edge_heartbeats_pkey primary key (tenant_id, edge_cluster_id)
);

alter table edge_heartbeats enable row level security;
alter table edge_heartbeats force row level security;
create policy "Users see in their company" on edge_heartbeats for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy edge_heartbeats_owner on edge_heartbeats for all to current_user
  using (true) with check (true);
create policy edge_heartbeats_service on edge_heartbeats for all to farmiq_service
  using (true) with check (true);
grant select on edge_heartbeats to authenticated;
grant select, insert, update on edge_heartbeats to farmiq_service;
