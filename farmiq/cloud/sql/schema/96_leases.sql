-- What only one process may do at a time (C-102). `fence` grows with every new holder: whoever comes
-- back from the dead with an older one has lost it, even under the same name.
create table leases (
  name text constraint leases_pkey primary key,
  holder text not null,
  fence bigint not null default 1,
  taken_at timestamptz not null,
  expires_at timestamptz not null,
  -- Of a gateway: its client id at the broker, and when it last began to listen there.
  client_id text,
  session_began_at timestamptz
);

alter table leases enable row level security;
alter table leases force row level security;
create policy leases_owner on leases for all to current_user
  using (true) with check (true);
create policy leases_service on leases for all to farmiq_service
  using (true) with check (true);
grant select, insert, update on leases to farmiq_service;
