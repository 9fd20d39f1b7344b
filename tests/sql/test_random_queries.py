"""Ten people, few connections, aborted transactions in between: never a row of another company."""

import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import LiteralString
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


WRITES = (
    "update {table} set {whose} = {whose}",
    "update {table} set {whose} = default",
    "delete from {table}",
    "delete from {table} where {whose} is not null returning {whose}",
    "insert into {table} default values",
    "insert into {table} ({whose}) select {whose} from {table}",
    "merge into {table} a using {table} b on a.{whose} = b.{whose} when matched then delete",
    "truncate {table} cascade",
    "select {whose} from {table} for update",
)


class AbortedError(Exception):
    """Something goes wrong in the middle of a person's transaction."""


@dataclass
class Tally:
    """`own` by how often a person saw rows: a test in which nobody sees any would show nothing."""

    looks: int = 0
    own: int = 0
    foreign: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)


@pytest.mark.req("DB2-08", "DB2-09", "XC-06")
@pytest.mark.parametrize("granted", [False, True], ids=["as it is", "all granted by mistake"])
@pytest.mark.parametrize("count", [600, pytest.param(50_000, marks=pytest.mark.long)])
@pytest.mark.timeout(900)
def test_no_foreign_rows(cloud_db: Database, two: Two, count: int, *, granted: bool) -> None:
    """With every right given away the policies alone have to hold."""
    chance = random.Random(count)
    people = _ten_people(cloud_db.admin_url, two)
    if granted:
        with psycopg.connect(cloud_db.admin_url) as connection:
            for table in _TABLES:
                connection.execute(
                    sql.SQL("grant select, insert, update, delete on {} to authenticated").format(
                        sql.Identifier(table)
                    )
                )
    before = _contents(cloud_db.admin_url)
    tally = Tally()
    with ConnectionPool(cloud_db.url, min_size=3, max_size=3) as pool:
        pool.wait()
        for _ in range(count):
            token, home = chance.choice(people)
            with suppress(AbortedError, psycopg.Error), pool.connection() as connection:
                _look(connection, token, home, two=two, chance=chance, tally=tally)
    assert tally.foreign == []
    assert tally.written == []
    assert tally.own >= tally.looks / 2 > count / 4
    assert _contents(cloud_db.admin_url) == before


def _contents(admin_url: str) -> dict[str, str]:
    """A fingerprint of every table that people see, as its owner sees it."""
    with psycopg.connect(admin_url) as connection:
        return {
            table: str(connection.execute(_FINGERPRINT.format(sql.Identifier(table))).fetchone())
            for table in _TABLES
        }


_FINGERPRINT = sql.SQL("select count(*), md5(string_agg(t::text, '|' order by t::text)) from {} t")


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
    for _ in range(chance.randint(1, 3)):
        table = chance.choice(_TABLES)
        if chance.random() < 0.25:
            _write(connection, table, chance=chance, tally=tally)
        allowed = set() if may_see is None else {two.tenant(may_see), str(may_see)}
        _read(connection, table, allowed, chance=chance, tally=tally)
    if chance.random() < 0.15:
        connection.execute("select 1 / 0")
    if chance.random() < 0.1:
        raise AbortedError


def _read(
    connection: psycopg.Connection,
    table: str,
    allowed: set[str],
    *,
    chance: random.Random,
    tally: Tally,
) -> None:
    rows = connection.execute(_statement(chance.choice(FORMS), table)).fetchall()
    foreign = {str(row[0]) for row in rows} - allowed
    if foreign:
        tally.foreign.append(f"{table}: {foreign} instead of {allowed}")
    tally.looks += 1
    tally.own += bool(rows)


def _write(
    connection: psycopg.Connection, table: str, *, chance: random.Random, tally: Tally
) -> None:
    form = chance.choice(WRITES)
    with suppress(psycopg.Error), connection.transaction():
        if connection.execute(_statement(form, table)).rowcount > 0 and "for update" not in form:
            tally.written.append(f"{table}: {form}")


def _statement(form: LiteralString, table: str) -> sql.Composed:
    whose = "company_id" if table in _OF_COMPANIES else "tenant_id"
    return sql.SQL(form).format(table=sql.Identifier(table), whose=sql.Identifier(whose))


_OF_COMPANIES = (
    "companies",
    "users",
    "memberships",
    *(table for table in two_companies.CAMERAS if table not in two_companies.NOT_FOR_PEOPLE),
)
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
