-- How a company wants to be told: contacts of level 2 hear of an alert that nobody has acknowledged
-- for so many minutes (null: never). A company without a row has the default of 15.
create table alert_settings (
  tenant_id text not null constraint alert_settings_pkey primary key
    constraint alert_settings_tenant_fkey references companies (tenant_id),
  escalate_after_min integer constraint alert_settings_escalate_after_min_positive
    check (escalate_after_min > 0),
  changed_at timestamptz not null,
  changed_by text not null
);

alter table alert_settings enable row level security;
alter table alert_settings force row level security;
create policy "Users see in their company" on alert_settings for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_settings_service on alert_settings for all to farmiq_service
  using (true) with check (true);
grant select on alert_settings to authenticated;
grant select, insert, update, delete on alert_settings to farmiq_service;
