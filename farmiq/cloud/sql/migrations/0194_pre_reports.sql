-- Who gets which report by mail: of a farm or of one of its batches, each week or month, at six in
-- the morning of the farm. user_id: whose address it is; when they are removed, it ends.
create table report_subscriptions (
  tenant_id text not null,
  subscription_id uuid not null,
  farm_id text not null,
  batch_id text,
  period text not null constraint report_subscriptions_period_known
    check (period in ('week', 'month')),
  address text not null constraint report_subscriptions_address_length
    check (length(address) between 3 and 254),
  language text not null,
  user_id uuid constraint report_subscriptions_user_fkey
    references users (user_id) on delete cascade,
  -- Nothing is sent for periods that were over before.
  created_at timestamptz not null,
  created_by text not null,
  constraint report_subscriptions_pkey primary key (tenant_id, subscription_id),
  constraint report_subscriptions_tenant_fkey foreign key (tenant_id)
    references companies (tenant_id),
  constraint report_subscriptions_farm_fkey foreign key (tenant_id, farm_id)
    references farms (tenant_id, farm_id) on delete cascade,
  constraint report_subscriptions_batch_fkey foreign key (tenant_id, batch_id)
    references batches (tenant_id, batch_id) on delete cascade
);
create unique index report_subscriptions_once on report_subscriptions
  (tenant_id, address, period, farm_id, coalesce(batch_id, ''));
create index report_subscriptions_user_id_idx on report_subscriptions (user_id);

alter table report_subscriptions enable row level security;
alter table report_subscriptions force row level security;
create policy "Users see in their company" on report_subscriptions for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
-- Whoever owns the database removes people, and their subscriptions with them.
create policy report_subscriptions_owner on report_subscriptions for all to current_user
  using (true) with check (true);
create policy report_subscriptions_service on report_subscriptions for all to farmiq_service
  using (true) with check (true);
grant select on report_subscriptions to authenticated;
grant select, insert, update, delete on report_subscriptions to farmiq_service;

-- Reports that were made to be mailed, with their files: one for each subscription and period.
-- message_id is their mail in alert_messages, which says whether it was sent; one that somebody asked
-- for by hand has no subscription. Without a file there was nothing to report.
create table reports (
  tenant_id text not null constraint reports_tenant_fkey references companies (tenant_id),
  report_id uuid not null,
  subscription_id uuid,
  farm_id text not null,
  batch_id text,
  period text not null constraint reports_period_known check (period in ('week', 'month')),
  first_day date not null,
  address text not null,
  language text not null,
  file_name text not null,
  file bytea,
  message_id uuid,
  created_at timestamptz not null,
  created_by text not null,
  constraint reports_pkey primary key (tenant_id, report_id),
  constraint reports_once unique (tenant_id, subscription_id, first_day)
);
create index reports_created_at_idx on reports (tenant_id, created_at desc, report_id);
create index reports_message_idx on reports (tenant_id, message_id);

alter table reports enable row level security;
alter table reports force row level security;
create policy "Users see in their company" on reports for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy reports_service on reports for all to farmiq_service
  using (true) with check (true);
grant select on reports to authenticated;
grant select, insert, update, delete on reports to farmiq_service;

-- additive: every step that was allowed still is.
do $$
begin
  alter table alert_messages drop constraint alert_messages_step_known;
  alter table alert_messages add constraint alert_messages_step_known
    check (step in ('opened', 'worsened', 'escalated', 'acknowledged', 'resolved', 'test',
      'report'));
end $$;
