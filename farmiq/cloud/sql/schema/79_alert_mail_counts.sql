-- Mails of a company over the mail server of the platform in an hour, the last in which it had any:
-- FARMIQ_ALERT_MAILS_PER_HOUR is what it may have.
create table alert_mail_counts (
  tenant_id text not null constraint alert_mail_counts_pkey primary key
    constraint alert_mail_counts_tenant_fkey references companies (tenant_id),
  hour timestamptz not null,
  used integer not null
);

alter table alert_mail_counts enable row level security;
alter table alert_mail_counts force row level security;
create policy "Users see in their company" on alert_mail_counts for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_mail_counts_service on alert_mail_counts for all to farmiq_service
  using (true) with check (true);
grant select on alert_mail_counts to authenticated;
grant select, insert, update, delete on alert_mail_counts to farmiq_service;
