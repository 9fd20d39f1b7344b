create table alert_series (
  tenant_id text not null,
  device_id text not null,
  metric_type text not null,
  farm_id text not null,
  barn_id text not null,
  read_to timestamptz not null,
  ingested_to timestamptz not null,
  last_at timestamptz,
  last_value double precision,
  states jsonb not null default '{}',
  constraint alert_series_pkey primary key (tenant_id, device_id, metric_type)
) with (fillfactor = 70);
grant select, insert, update, delete on alert_series to farmiq_edge;
create table local_alerts (
  kind text not null,
  subject text not null,
  tenant_id text not null,
  farm_id text not null,
  barn_id text not null,
  severity text not null,
  message text not null,
  opened_at timestamptz not null,
  silenced_at timestamptz,
  silenced_by text,
  constraint local_alerts_pkey primary key (kind, subject)
);
grant select, insert, update, delete on local_alerts to farmiq_edge;
create table alert_sirens (
  output text constraint alert_sirens_pkey primary key,
  is_on boolean not null,
  driven_at timestamptz
);
grant select, insert, update, delete on alert_sirens to farmiq_edge;
create table alert_mails (
  mail_id uuid constraint alert_mails_pkey primary key,
  kind text not null,
  subject text not null,
  headline text not null,
  body text not null,
  created_at timestamptz not null,
  attempts integer not null default 0,
  next_at timestamptz not null,
  sent_at timestamptz,
  given_up_at timestamptz,
  error text
);
create index alert_mails_pending_idx on alert_mails (next_at)
  where sent_at is null and given_up_at is null;
grant select, insert, update, delete on alert_mails to farmiq_edge;
