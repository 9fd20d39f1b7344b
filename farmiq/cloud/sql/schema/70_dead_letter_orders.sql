-- What people order to be done with dead letters: a page writes the order, cloud-deadletter-service
-- does it and writes here what became of it. Letters are chosen by queue, and by reason (as in
-- dead_letter_groups) or event ids. `outcomes` are those of the first letters, one each; `done` and
-- `failed` count all. claimed_until: somebody works on it; if they die, it goes on after that.
create table dead_letter_orders (
  order_id uuid constraint dead_letter_orders_pkey primary key,
  tenant_id text not null
    constraint dead_letter_orders_tenant_fkey references companies (tenant_id),
  action text not null constraint dead_letter_orders_action_known
    check (action in ('redrive', 'discard')),
  dry_run boolean not null,
  queue text not null,
  reason text,
  event_ids text[] not null,
  note text not null constraint dead_letter_orders_note_length check (length(note) <= 500),
  max_letters integer not null,
  rate_per_s double precision not null,
  ordered_by text not null,
  ordered_at timestamptz not null,
  state text not null default 'queued' constraint dead_letter_orders_state_known
    check (state in ('queued', 'running', 'done', 'failed')),
  claimed_until timestamptz,
  ended_at timestamptz,
  done bigint not null default 0,
  failed bigint not null default 0,
  outcomes jsonb not null default '[]',
  error text
);
create index dead_letter_orders_tenant_idx on dead_letter_orders (tenant_id, ordered_at desc);
create index dead_letter_orders_open_idx on dead_letter_orders (ordered_at)
  where state in ('queued', 'running');

alter table dead_letter_orders enable row level security;
alter table dead_letter_orders force row level security;
create policy "Users see in their company" on dead_letter_orders for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy dead_letter_orders_service on dead_letter_orders for all to farmiq_service
  using (true) with check (true);
grant select on dead_letter_orders to authenticated;
grant select, insert, update, delete on dead_letter_orders to farmiq_service;
