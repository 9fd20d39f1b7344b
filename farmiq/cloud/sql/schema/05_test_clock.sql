-- How far fn_now() is ahead in a database that its owner uses for tests; elsewhere it is empty.
create table test_clock (
  only_row boolean not null default true
    constraint test_clock_pkey primary key
    constraint test_clock_only_row check (only_row),
  ahead interval not null
);

alter table test_clock enable row level security;
alter table test_clock force row level security;
create policy test_clock_owner on test_clock for all to current_user using (true) with check (true);
create policy test_clock_read on test_clock for select using (true);
grant select on test_clock to public;
