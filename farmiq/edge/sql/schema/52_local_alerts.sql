-- What a rule found here and is not over: these drive the siren until they are over, somebody
-- silences them, here or in the cloud, or closes the alert of the same kind (rule.<rule_id>) and
-- subject. in_maintenance: a window of the cloud holds it now. mailed_at: when people were mailed.
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
  in_maintenance boolean not null default false,
  mailed_at timestamptz,
  constraint local_alerts_pkey primary key (kind, subject)
);
grant select, insert, update, delete on local_alerts to farmiq_edge;
-- Each siren that may be on: a topic of the broker, or the command. It is on from before it is
-- switched on until after it is switched off, so one that a crash left on is switched off later.
create table alert_sirens (
  output text constraint alert_sirens_pkey primary key,
  is_on boolean not null,
  driven_at timestamptz
);
grant select, insert, update, delete on alert_sirens to farmiq_edge;
