"""The clock that decides can be moved by a database's owner, for tests, and by nobody else."""

import psycopg
import pytest

from tests.conftest import Database
from tests.sql import two_companies
from tests.sql.two_companies import Two

MOVE = """
insert into test_clock (ahead) values (%s)
on conflict on constraint test_clock_pkey do update set ahead = excluded.ahead
"""


@pytest.fixture(params=["edge", "cloud"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_db")
    return found


def ahead(connection: psycopg.Connection) -> object:
    row = connection.execute("select extract(epoch from fn_now() - now())::int").fetchone()
    return row[0] if row else None


def test_unmarked_it_is_now(database: Database) -> None:
    with psycopg.connect(database.url) as connection:
        assert ahead(connection) == 0


def test_the_owner_moves_it_for_every_session_at_once(database: Database) -> None:
    with (
        psycopg.connect(database.url, autocommit=True) as service,
        psycopg.connect(database.admin_url, autocommit=True) as owner,
    ):
        for offset, seconds in (("36 hours", 129600), ("-1 day", -86400), ("0", 0)):
            owner.execute(MOVE, (offset,))
            assert ahead(service) == seconds


@pytest.mark.parametrize(
    "attempt",
    [
        "insert into test_clock (ahead) values ('1 day')",
        "update test_clock set ahead = '1 day'",
        "delete from test_clock",
        "truncate test_clock",
        "drop table test_clock",
        "alter table test_clock disable row level security",
        "create or replace function fn_now() returns timestamptz language sql as 'select now()'",
        "create table public.test_clock (ahead interval)",
    ],
)
def test_a_service_cannot_move_it(database: Database, attempt: str) -> None:
    with psycopg.connect(database.url, autocommit=True) as service:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            service.execute(attempt.encode())
        assert ahead(service) == 0


def test_a_clock_of_the_services_own_is_not_asked(database: Database) -> None:
    with psycopg.connect(database.url) as service:
        service.execute("create temp table test_clock as select interval '1 day' as ahead")
        service.execute("set search_path = pg_temp, public")
        assert ahead(service) == 0


def test_a_sign_in_ends_by_this_clock(cloud_db: Database, two: Two) -> None:
    with psycopg.connect(cloud_db.admin_url, autocommit=True) as owner:
        owner.execute(MOVE, ("59 minutes",))
        with two_companies.looking(cloud_db.url, two.tokens["ann"]) as connection:
            assert two_companies.owners(connection, "companies") == {two.one}
            # The same transaction, an hour later: the next statement sees nothing.
            owner.execute(MOVE, ("61 minutes",))
            assert two_companies.owners(connection, "companies") == set()
        with (
            pytest.raises(psycopg.errors.InvalidAuthorizationSpecification),
            two_companies.looking(cloud_db.url, two.tokens["ann"]),
        ):
            pass
