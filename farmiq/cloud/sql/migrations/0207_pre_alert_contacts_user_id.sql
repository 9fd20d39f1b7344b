-- Of a person who is removed.
create index concurrently if not exists alert_contacts_user_id_idx on alert_contacts (user_id);
