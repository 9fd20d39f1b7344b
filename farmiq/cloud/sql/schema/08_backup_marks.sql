-- When the backup of this site last copied all, stored a change, was read through and was restored on
-- trial (D-620); `problem` says what was found wanting. The owner writes, services show it.
create table backup_marks (
  mark text constraint backup_marks_pkey primary key,
  at timestamptz not null,
  problem text not null
);

alter table backup_marks enable row level security;
alter table backup_marks force row level security;
create policy backup_marks_owner on backup_marks for all to current_user
  using (true) with check (true);
create policy backup_marks_service on backup_marks for select to farmiq_service
  using (true);
grant select on backup_marks to farmiq_service;
