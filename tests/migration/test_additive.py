"""What a pre migration may hold: the check lets through what only adds, and nothing else."""

import pytest

from tests.migration import additive

BREAKING = [
    "drop table users",
    "select 1; /* fine */ drop index users_idx",
    "truncate users",
    "delete from users",
    "update users set email = ''",
    "alter table users add b int; update users set b = 1, email = ''",
    "alter table users add b text; update users set b = substring(b from 2), email = ''",
    "alter table users add column if not exists email text; update users set email = ''",
    "alter table users add b int; update users set (b, email) = (1, '')",
    "alter table users add b int; update people set b = 1",
    "insert into users values (1)",
    "alter table users rename to people",
    "alter table users rename column email to mail",
    "alter table users set schema elsewhere",
    "alter table users owner to somebody",
    "alter table users set unlogged",
    "alter table users inherit people",
    "alter table users drop column email",
    "alter table users drop constraint users_email_key",
    "alter table users alter column email type varchar(10)",
    "alter table users alter email set data type text",
    'alter table users alter "e" type text',
    'alter table users alter "E e" type text',
    "ALTER TABLE users ALTER COLUMN email SET NOT NULL",
    "alter table users alter email drop default",
    "alter table users alter email set default null",
    "alter table users alter email drop expression",
    "alter table users add age int not null",
    "alter table users add column\n  age int not null",
    "alter table users add column p numeric(10,2) not null",
    "alter table users add column a int, add column b int not null",
    "alter table users add column b int not null default null",
    "alter table users add column b text not null check (b <> 'default x')",
    "alter table users add column b int unique",
    "alter table users add column b int default 1 primary key",
    "alter table users add column b int check (age > 0)",
    "alter table users add column b int check (b > age)",
    "alter table users add column b int check ((b) > 1 and (age > 1)) default 2",
    "alter table users add column b int check (b > 1) constraint c check (age > 1)",
    "alter table users add column b int references t on delete set default not null",
    "alter table users add column b int generated always as (1 / age) stored",
    "alter table users add check (age > 0)",
    "alter table users add constraint c check (age > 0) not valid",
    "alter table users add constraint c unique (email)",
    "alter table users add unique (email)",
    "alter table users add primary key (email)",
    "alter table users add foreign key (email) references mails",
    "alter table users add exclude using gist (span with &&)",
    "alter table users add not null email",
    "alter table users disable row level security",
    "alter table users no force row level security",
    "alter table users enable row level security",
    "alter table users disable trigger all",
    "alter table users replica identity nothing",
    "alter table users detach partition users_2026",
    "alter table a_view set (security_invoker = false)",
    "alter view a_view set (security_invoker = false)",
    "alter function f() security definer",
    "alter type mood rename value 'a' to 'b'",
    "alter role farmiq_edge nologin",
    "create unique index users_email_idx on users (email)",
    "create unique index on public.users (email)",
    "create policy p on users as restrictive using (true)",
    "create policy p on users as restrictive",
    "drop policy p on users",
    "create or replace view a_view as select 1",
    "create or replace trigger g before insert on users for each row execute function f()",
    "create rule r as on delete to users do instead nothing",
    "create table copies as select * from users",
    "create table people () inherits (users)",
    "create foreign table f () server s",
    "create role somebody",
    "grant farmiq_jobs to farmiq_edge",
    "revoke select on users from farmiq_edge",
    "revoke execute on function f() from public",
    "revoke all on all tables in schema public from farmiq_edge",
    "do $$ begin drop table users; end $$",
    "-- additive:\ndo $$ begin end $$",
    "select drop_everything()",
    "lock table users",
    "call p()",
    "with gone as (delete from users returning *) select * from gone",
    "create table a (n int); with gone as (delete from users returning *) insert into a select 1",
    "create table a (n int); insert into a with x as (delete from users returning 1) select 1",
    "create table if not exists users (n int); alter table users drop column email",
    "create table if not exists users (n int); insert into users values (1)",
    "create table elsewhere.users (n int); alter table users drop column email",
    "create table a (n int); drop table a",
    "create view a as select 1; alter table users drop column email",
    "comment on table users is 'a;b'; drop table users",
    "comment on table users is E'it\\'s'; drop table users",
    'create table "a;b" (n int); drop table users',
    "create function f() returns int language sql as $f$ select 1; $f$; drop table users",
    "/* create table users (n int); */ alter table users drop column email",
]
ADDING = [
    "",
    "-- drop nothing",
    "create table a (n int not null); create index a_n_idx on a (n);",
    "create table a (n int constraint a_n_positive check (n > 0), unique (n))",
    "create table a (n int) partition by range (n); create table a_rest partition of a default",
    "create table a_2026 partition of a for values from (1) to (2)",
    "create table if not exists a (n int)",
    "create index a_n_idx on a (n) where n > 0",
    "create index if not exists a_n_idx on a using gin (n) with (fillfactor = 70)",
    "create table a (n int); create unique index a_n_key on a (n) where n > 0",
    'create table public.a (n int); create unique index a_n_key on "a" (n)',
    (
        "create table a (n int); alter table a enable row level security; "
        "alter table a force row level security; "
        "create policy p on a as restrictive using (true)"
    ),
    "create table a (n int); alter table a add constraint a_n_key unique (n)",
    "create table a (n int); insert into a (n) values (1), (2) on conflict do nothing",
    "create table a (n int); insert into a select 1 from users on conflict (n) do update set n = 2",
    "create table a (n int); create trigger g before insert on a for each row execute function f()",
    "create table a (n int); revoke select on a from public",
    "alter table a add column b int not null default 0, add column c text",
    "alter table a add column if not exists b text not null default 'x, y' check (b in ('x', 'z'))",
    "alter table a add column b int constraint c check ((b) > 0) not null default 1",
    "alter table a add b numeric(10, 2) not null default 0.5",
    "alter table a add column b bigint generated always as identity",
    "alter table a add column b uuid references bs (id) on delete set null",
    "alter table a add column b text check (b is null or length(b) < 3 or b::int > 4)",
    "alter table a add column at timestamptz not null default now()",
    "-- drop nothing\nalter table a alter column b drop not null",
    "alter table a add b int, add c text; update a set c = left(d, 2), b = e where f = 1",
    "alter table a alter column b set default 1",
    "alter table a alter b set statistics 500",
    "alter table only a set (autovacuum_vacuum_scale_factor = 0.02, fillfactor = 80)",
    "alter table a set (toast.autovacuum_enabled = off)",
    "create table a_2027 (n int); alter table a attach partition a_2027 for values from (1) to (2)",
    "create view v with (security_invoker = true) as select n from a; grant select on v to public",
    (
        "create or replace function f(n int) returns int language sql as $$ select n; $$; "
        "revoke execute on function f(int) from public; grant execute on function f(int) to public"
    ),
    "create function f() returns int language sql as 'select 1'; alter function f() owner to jobs",
    "create trigger g before insert on a for each row execute function f()",
    "create policy p on a for select to farmiq_service using (true)",
    "create policy p on a as permissive using (true)",
    "grant select, insert (n) on a to farmiq_edge",
    "comment on table a is 'drop table users; it''s ours'",
    "create type mood as enum ('a', 'b'); create sequence s; create statistics st on a, b from t",
    "set local lock_timeout = '2s'",
    "-- additive: fills the new column for rows that are there already\ndo $$ begin end $$",
    "/* additive: makes the partitions of the next months */ select fn_make_months(3)",
]


@pytest.mark.req("UP-03")
@pytest.mark.parametrize("text", BREAKING)
def test_what_would_break_running_code_is_found(text: str) -> None:
    assert additive.problems(text)


@pytest.mark.req("UP-03")
@pytest.mark.parametrize("text", ADDING)
def test_what_only_adds_is_not_found(text: str) -> None:
    assert additive.problems(text) == []


def test_a_problem_says_what_and_where() -> None:
    assert additive.problems("create table a (n int); alter table Users add age int not null;") == [
        "adds a mandatory column without a default: alter table users add age int not null"
    ]
