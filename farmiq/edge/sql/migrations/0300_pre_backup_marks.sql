-- When the backup of this site last copied all, stored a change, was read through and was restored on
-- trial (D-620); `problem` says what was found wanting. The owner writes, services show it.
create table backup_marks (
  mark text constraint backup_marks_pkey primary key,
  at timestamptz not null,
  problem text not null
);
grant select on backup_marks to farmiq_edge;
