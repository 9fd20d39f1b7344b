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
