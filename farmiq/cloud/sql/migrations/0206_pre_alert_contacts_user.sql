-- Whose browser a contact is: it goes with the person.
alter table alert_contacts add column user_id uuid
  constraint alert_contacts_user_fkey references users (user_id) on delete cascade;
create policy alert_contacts_owner on alert_contacts for all to current_user
  using (true) with check (true);
-- additive: fills the new column of browsers, which are named after their person.
do $$
begin
  update alert_contacts c set user_id = u.user_id from users u
  where c.contact_id like 'device-%' and starts_with(c.name, u.email || ', ');
end $$;
