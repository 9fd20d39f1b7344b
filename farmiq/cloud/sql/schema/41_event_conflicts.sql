-- An id that came again with another content: answered as a duplicate, but never silently (C-05).
create table event_conflicts (
  tenant_id text not null,
  event_id uuid not null,
  content_hash bytea not null,
  first_content_hash bytea not null,
  batch_id text not null,
  seen_at timestamptz not null default now(),
  constraint event_conflicts_pkey primary key (tenant_id, event_id, content_hash)
);

alter table event_conflicts enable row level security;
alter table event_conflicts force row level security;
create policy "Users see in their company" on event_conflicts for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy event_conflicts_service on event_conflicts for all to farmiq_service
  using (true) with check (true);
grant select on event_conflicts to authenticated;
grant select, insert on event_conflicts to farmiq_service;
