-- A clock that tests can move (C-101): what decides by time asks fn_now().

-- How far fn_now() is ahead in a database that its owner uses for tests; elsewhere it is empty.
create table test_clock (
  only_row boolean not null default true
    constraint test_clock_pkey primary key
    constraint test_clock_only_row check (only_row),
  ahead interval not null
);
grant select on test_clock to public;
