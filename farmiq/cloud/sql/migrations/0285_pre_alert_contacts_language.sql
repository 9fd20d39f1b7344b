-- Of the messages to them.
alter table alert_contacts add column language text not null default 'en';
