-- Values that came after later ones of their series: it is evaluated again from occurred_at on, once the
-- value and the newest one of the series are stored.
create table alert_rechecks (
  tenant_id text not null,
  signal text not null,
  subject text not null,
  event_id uuid not null,
  occurred_at timestamptz not null,
  attempts integer not null default 0,
  due_at timestamptz not null default now() + interval '1 second',
  received_at timestamptz not null default now(),
  constraint alert_rechecks_pkey primary key (tenant_id, signal, subject, event_id)
);
create index alert_rechecks_due_at_idx on alert_rechecks (due_at);
create index alert_rechecks_received_at_idx on alert_rechecks (received_at);

alter table alert_rechecks enable row level security;
alter table alert_rechecks force row level security;
create policy "Users see in their company" on alert_rechecks for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_rechecks_service on alert_rechecks for all to farmiq_service
  using (true) with check (true);
grant select on alert_rechecks to authenticated;
grant select, insert, update, delete on alert_rechecks to farmiq_service;
