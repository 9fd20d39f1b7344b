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
