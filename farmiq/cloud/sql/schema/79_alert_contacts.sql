-- Who is told of alerts: of which severities and farms (null: all), over which channels (an object
-- of channel_id to address), at once (level 1) or when nobody has acknowledged (level 2). In the
-- quiet hours, by the clocks of `timezone`, only severities in quiet_passed_by are told. user_id: whose
-- browser it is; when they are removed, it is too.
create table alert_contacts (
  tenant_id text not null constraint alert_contacts_tenant_fkey references companies (tenant_id),
  contact_id text not null constraint alert_contacts_contact_id_length
    check (length(contact_id) <= 128),
  name text not null constraint alert_contacts_name_given check (name <> ''),
  is_enabled boolean not null default true,
  level smallint not null constraint alert_contacts_level_known check (level in (1, 2)),
  severities text[] not null,
  farms text[],
  addresses jsonb not null,
  timezone text,
  quiet_from time,
  quiet_until time,
  quiet_passed_by text[] not null,
  changed_at timestamptz not null,
  changed_by text not null,
  user_id uuid constraint alert_contacts_user_fkey references users (user_id) on delete cascade,
  -- Of the messages to them.
  language text not null default 'en',
  constraint alert_contacts_pkey primary key (tenant_id, contact_id),
  constraint alert_contacts_quiet_hours
    check ((quiet_from is null) = (quiet_until is null)
      and (quiet_from is null) = (timezone is null) and quiet_from <> quiet_until)
);
create index alert_contacts_user_id_idx on alert_contacts (user_id);

alter table alert_contacts enable row level security;
alter table alert_contacts force row level security;
create policy "Users see in their company" on alert_contacts for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
-- Whoever owns the database removes people, and their browsers with them.
create policy alert_contacts_owner on alert_contacts for all to current_user
  using (true) with check (true);
create policy alert_contacts_service on alert_contacts for all to farmiq_service
  using (true) with check (true);
grant select on alert_contacts to authenticated;
grant select, insert, update, delete on alert_contacts to farmiq_service;
