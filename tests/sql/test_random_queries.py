"""Ten people, few connections, aborted transactions in between: never a row of another company."""

import random
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import ConnectionPool

from farmiq.cloud.identity.accounts import add_user
from tests.conftest import Database
from tests.sql import two_companies
from tests.sql.two_companies import PASSWORD, Two

FORMS = (
    "select {whose} from {table}",
    "select {whose} from {table} where {whose} is not null order by 1 desc limit 5",
    "select distinct {whose} from {table} union select {whose} from {table}",
    "select max({whose}::text) from {table} group by {whose}",
    "with w as materialized (select * from (select {whose} from {table}) x) select * from w",
    "select a.{whose} from {table} a left join {table} b on a.{whose} <> b.{whose}",
    "select {whose} from {table} where exists (select from companies)",
    "select {whose} from {table} tablesample bernoulli (100)",
)


class AbortedError(Exception):
    """Something goes wrong in the middle of a person's transaction."""


@dataclass
class Tally:
    """`own` by how often a person saw rows: a test in which nobody sees any would show nothing."""

    own: int = 0
    foreign: list[str] = field(default_factory=list)


@pytest.mark.parametrize("count", [2_000, pytest.param(50_000, marks=pytest.mark.long)])
@pytest.mark.timeout(900)
def test_no_foreign_rows(cloud_db: Database, two: Two, count: int) -> None:
    chance = random.Random(count)
    people = _ten_people(cloud_db.admin_url, two)
    tally = Tally()
    with ConnectionPool(cloud_db.url, min_size=3, max_size=3) as pool:
        pool.wait()
        for _ in range(count):
            token, home = chance.choice(people)
            with suppress(AbortedError, psycopg.Error), pool.connection() as connection:
                _look(connection, token, home, two=two, chance=chance, tally=tally)
    assert tally.foreign == []
    assert tally.own > count / 4


def _look(
    connection: psycopg.Connection,
    token: str,
    home: UUID | None,
    *,
    two: Two,
    chance: random.Random,
    tally: Tally,
) -> None:
    """One transaction of one person; a home of None is a super admin's, who looks anywhere."""
    connection.execute("set local role authenticated")
    may_see = None
    if chance.random() < 0.9:
        connection.execute("select begin_session(%s)", (token,))
        may_see = home or two.one
    if chance.random() < 0.3:
        wanted = chance.choice((two.one, two.two))
        connection.execute("select set_active_company_context(%s)", (wanted,))
        may_see = wanted
    if chance.random() < 0.1:
        # A lie: at best it shows nothing, and for a super admin it is as good as choosing.
        lie = chance.choice((two.one, two.two))
        connection.execute("select set_config('farmiq.company_id', %s, true)", (str(lie),))
        may_see = lie if may_see is not None and home in {None, lie} else None
    table = chance.choice(_TABLES)
    whose = "company_id" if table in _OF_COMPANIES else "tenant_id"
    form = sql.SQL(chance.choice(FORMS))
    rows = connection.execute(
        form.format(table=sql.Identifier(table), whose=sql.Identifier(whose))
    ).fetchall()
    allowed = set() if may_see is None else {two.tenant(may_see), str(may_see)}
    foreign = {str(row[0]) for row in rows} - allowed
    if foreign:
        tally.foreign.append(f"{table}: {foreign} instead of {allowed}")
    tally.own += bool(rows)
    if chance.random() < 0.15:
        connection.execute("select 1 / 0")
    if chance.random() < 0.1:
        raise AbortedError


_OF_COMPANIES = ("companies", "users", "memberships", *two_companies.CAMERAS)
_TABLES = (
    *_OF_COMPANIES,
    *sorted(two_companies.SEED.keys() - set(_OF_COMPANIES) - two_companies.NOT_FOR_PEOPLE),
)


def _ten_people(admin_url: str, two: Two) -> list[tuple[str, UUID | None]]:
    """Four of each company and two super admins, each with a sign-in."""
    assert set(_TABLES) == set(two_companies.for_people(admin_url))
    people: list[tuple[str, UUID | None]] = []
    with psycopg.connect(admin_url) as connection:
        for number in range(10):
            home = two.two if number % 2 and number < 8 else two.one
            name = f"p{number}"
            add_user(
                connection,
                two_companies.email(name),
                company_id=home,
                password=PASSWORD,
                super_admin=number >= 8,
            )
            token = two_companies.token(connection, name)
            people.append((token, None if number >= 8 else home))
    return people
