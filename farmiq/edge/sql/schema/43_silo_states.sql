-- How far a silo's readings were derived from, and what of them is still open (edge/feed/silo.py).
create table silo_states (
  tenant_id text not null,
  device_id text not null,
  state jsonb not null default '{}',
  derived_at timestamptz not null default now(),
  constraint silo_states_pkey primary key (tenant_id, device_id)
);
grant select, insert, update, delete on silo_states to farmiq_edge;
