-- Who redrove or discarded which dead letter of the bus. It is only ever added to.
-- What was discarded keeps its bytes here; a letter that nobody could read belongs to no tenant.
create table dead_letter_actions (
  action_id uuid constraint dead_letter_actions_pkey primary key,
  at timestamptz not null default now(),
  actor text not null,
  action text not null constraint dead_letter_actions_action_known
    check (action in ('redrive', 'discard')),
  queue text not null,
  tenant_id text,
  event_id text,
  event_type text,
  reason text not null,
  outcome text not null,
  body_sha256 bytea not null,
  body bytea
);
create index dead_letter_actions_tenant_idx on dead_letter_actions (tenant_id, at desc);

alter table dead_letter_actions enable row level security;
alter table dead_letter_actions force row level security;
create policy "Users see in their company" on dead_letter_actions for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy dead_letter_actions_service on dead_letter_actions for all to farmiq_service
  using (true) with check (true);
grant select on dead_letter_actions to authenticated;
grant select, insert on dead_letter_actions to farmiq_service;
