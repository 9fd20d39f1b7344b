"""Prove that a backup can be restored: restore it elsewhere and compare it with what is live.

The live database gets a named restore point while one of our transactions sees exactly the rows
that were committed up to it. Then a copy that is restored up to that name must have the same rows
in every table: the same count and the same sum of hashes.
"""

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg import sql

from farmiq.plumbing.backup.database import BackupError

POINT_WITHIN_S = 30.0
_TABLES = """
select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and c.relpersistence = 'p'
  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname not like 'pg\\_%'
order by 1, 2
"""
_CONTENT = sql.SQL(
    "select count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) from {} t"
)


@dataclass(frozen=True, slots=True)
class Content:
    rows: int
    hashes: int


@dataclass(frozen=True, slots=True)
class Difference:
    table: str
    live: Content | None
    restored: Content | None

    def __str__(self) -> str:
        def words(content: Content | None) -> str:
            return "no such table" if content is None else f"{content.rows} rows"

        if self.live and self.restored and self.live.rows == self.restored.rows:
            return f"{self.table}: {self.live.rows} rows, but not the same ones"
        return f"{self.table}: {words(self.live)} live, {words(self.restored)} restored"


@contextlib.contextmanager
def restore_point(url: str, name: str) -> Iterator[tuple[psycopg.Connection, str]]:
    """A transaction that sees the rows of a moment, and the name of that moment in the changes.

    At the point nobody may be writing: a transaction whose commit is in the changes is seen by
    others a moment later. So nobody may hold a transaction that has written, before the point and
    behind it, and none may have ended between our snapshot and then: both snapshots are the same.
    Under load that takes some attempts, each with a name of its own, since a restore stops at the
    first point of that name.
    """
    ends_at = time.monotonic() + POINT_WITHIN_S
    with (
        psycopg.connect(url, connect_timeout=5) as frozen,
        psycopg.connect(url, connect_timeout=5, autocommit=True) as other,
    ):
        frozen.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for attempt in itertools.count():
            before = _snapshot(frozen)
            if _nobody_writes(other):
                point = f"{name}-{attempt}"
                other.execute("select pg_create_restore_point(%s)", (point,))
                if _nobody_writes(other) and before == _snapshot(other):
                    yield frozen, point
                    return
            frozen.rollback()
            if time.monotonic() > ends_at:
                break
    raise BackupError("the database was never at rest for a moment: drill at a quieter hour")


def _snapshot(connection: psycopg.Connection) -> str:
    (snapshot,) = connection.execute("select pg_current_snapshot()::text").fetchone() or ("",)
    return str(snapshot)


def _nobody_writes(connection: psycopg.Connection) -> bool:
    """Who has written holds a lock on the number of its transaction until others see it."""
    row = connection.execute(
        "select from pg_locks where locktype = 'transactionid' and mode = 'ExclusiveLock' "
        "and granted limit 1"
    ).fetchone()
    return row is None


def content(connection: psycopg.Connection) -> dict[str, Content]:
    """Rows and hashes of every table, by its name."""
    contents = {}
    connection.execute("set local timezone to 'UTC'")
    connection.execute("set local extra_float_digits to 1")
    for schema, table in connection.execute(_TABLES).fetchall():
        row = connection.execute(_CONTENT.format(sql.Identifier(schema, table))).fetchone()
        assert row is not None  # noqa: S101 - an aggregate has one row
        contents[f"{schema}.{table}"] = Content(row[0], int(row[1]))
    return contents


def compare(live: dict[str, Content], restored: dict[str, Content]) -> list[Difference]:
    return [
        Difference(table, live.get(table), restored.get(table))
        for table in sorted(live.keys() | restored.keys())
        if live.get(table) != restored.get(table)
    ]
