-- When a daily chore last went well, so that one missed while the machine was off is made up for.
create table chore_runs (
  chore text constraint chore_runs_pkey primary key,
  last_done_at timestamptz not null
);
grant select, insert, update on chore_runs to farmiq_edge;
