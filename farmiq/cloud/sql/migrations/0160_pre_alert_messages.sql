-- How messages leave: a mail server, a webhook, a provider of short messages and so on. `secrets` is
-- sealed with the key of FARMIQ_SECRETS_KEY_FILE (addresses with tokens, passwords, keys), for this
-- tenant and channel alone; people read neither it nor what is in it.
create table alert_channels (
  tenant_id text not null constraint alert_channels_tenant_fkey references companies (tenant_id),
  channel_id text not null constraint alert_channels_channel_id_length
    check (length(channel_id) <= 128),
  kind text not null constraint alert_channels_kind_known
    check (kind in ('email', 'webhook', 'ntfy', 'telegram', 'sms', 'post', 'web_push')),
  name text,
  is_enabled boolean not null default true,
  settings jsonb not null,
  secrets bytea,
  -- What may be shown of them: their names, the host they lead to, the public half of a key.
  secret_names text[] not null,
  host text,
  public_key text,
  changed_at timestamptz not null,
  changed_by text not null,
  constraint alert_channels_pkey primary key (tenant_id, channel_id)
);

alter table alert_channels enable row level security;
alter table alert_channels force row level security;
create policy "Users see in their company" on alert_channels for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_channels_service on alert_channels for all to farmiq_service
  using (true) with check (true);
grant select (tenant_id, channel_id, kind, name, is_enabled, settings, secret_names, host,
  public_key, changed_at, changed_by) on alert_channels to authenticated;
grant select, insert, update, delete on alert_channels to farmiq_service;
-- Who is told of alerts: of which severities and farms (null: all), over which channels (an object
-- of channel_id to address), at once (level 1) or when nobody has acknowledged (level 2). In the
-- quiet hours, by the clocks of `timezone`, only severities in quiet_passed_by are told.
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
  constraint alert_contacts_pkey primary key (tenant_id, contact_id),
  constraint alert_contacts_quiet_hours
    check ((quiet_from is null) = (quiet_until is null)
      and (quiet_from is null) = (timezone is null) and quiet_from <> quiet_until)
);

alter table alert_contacts enable row level security;
alter table alert_contacts force row level security;
create policy "Users see in their company" on alert_contacts for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_contacts_service on alert_contacts for all to farmiq_service
  using (true) with check (true);
grant select on alert_contacts to authenticated;
grant select, insert, update, delete on alert_contacts to farmiq_service;
-- The outbox of alerts: one row for each step of an episode, contact and channel; a test message has
-- no episode. Pending until it is sent, failed for good, or dropped because it is over. claimed_until:
-- somebody sends it; if they die, it is sent again after that. The link to acknowledge is not in
-- here: it is made when the message leaves.
create table alert_messages (
  tenant_id text not null constraint alert_messages_tenant_fkey references companies (tenant_id),
  message_id uuid not null,
  episode_id uuid,
  step text not null constraint alert_messages_step_known
    check (step in ('opened', 'worsened', 'escalated', 'acknowledged', 'resolved', 'test')),
  contact_id text,
  channel_id text not null,
  address text not null,
  severity text not null,
  subject text not null,
  body text not null,
  content jsonb not null,
  state text not null default 'pending' constraint alert_messages_state_known
    check (state in ('pending', 'sent', 'failed', 'dropped')),
  created_at timestamptz not null,
  send_after timestamptz not null,
  next_attempt_at timestamptz not null,
  claimed_until timestamptz,
  attempts integer not null default 0,
  ended_at timestamptz,
  error text,
  constraint alert_messages_pkey primary key (tenant_id, message_id),
  constraint alert_messages_step_key unique (tenant_id, episode_id, step, contact_id, channel_id),
  constraint alert_messages_episode_fkey foreign key (tenant_id, episode_id)
    references alert_episodes (tenant_id, episode_id) on delete cascade
);
create index alert_messages_pending_idx on alert_messages (next_attempt_at)
  where state = 'pending';
create index alert_messages_created_at_idx on alert_messages
  (tenant_id, created_at desc, message_id desc);

alter table alert_messages enable row level security;
alter table alert_messages force row level security;
create policy "Users see in their company" on alert_messages for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_messages_service on alert_messages for all to farmiq_service
  using (true) with check (true);
grant select on alert_messages to authenticated;
grant select, insert, update, delete on alert_messages to farmiq_service;
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
