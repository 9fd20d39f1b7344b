-- A mail for each receiver: one who is refused keeps it from nobody else.
alter table alert_mails add column receiver text;
