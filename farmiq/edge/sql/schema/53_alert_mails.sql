-- Mails of the edge itself about local alerts: to each receiver one when it opens and one when it is
-- over. A row without a receiver is for all of ALERT_MAIL_TO.
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
  error text,
  receiver text
);
create index alert_mails_pending_idx on alert_mails (next_at)
  where sent_at is null and given_up_at is null;
grant select, insert, update, delete on alert_mails to farmiq_edge;
