-- Whether maintenance of the cloud holds a local alert now, and when people were mailed about it.
alter table local_alerts
  add column in_maintenance boolean not null default false,
  add column mailed_at timestamptz;
update local_alerts set mailed_at = m.created_at
from (
  select distinct on (kind, subject) kind, subject, headline, created_at from alert_mails
  order by kind, subject, created_at desc, mail_id desc
) m
where m.kind = local_alerts.kind and m.subject = local_alerts.subject
  and not starts_with(m.headline, 'resolved: ');
