-- What was deleted of a person, a device or a company: when, by whom, how many rows of which table, how
-- many objects of the bucket, and what stays because the law wants it. A record names nobody who is gone;
-- it holds the hash of the one before it, so that none can be changed or left out unseen (D-593).
create table deletions (
  deletion_id uuid constraint deletions_pkey primary key,
  number bigint generated always as identity constraint deletions_number_key unique,
  at timestamptz not null,
  record jsonb not null,
  sha256 text not null
);

alter table deletions enable row level security;
alter table deletions force row level security;
-- Only the owner deletes, and looks: a company that is gone has nobody who may.
create policy deletions_owner on deletions for all to current_user using (true) with check (true);
