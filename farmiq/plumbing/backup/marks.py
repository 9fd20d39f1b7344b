"""When a backup last did what, in the database of its site: all who watch the site can read it.

[backup stream, verify, drill] ──► backup_marks ──► [services] /metrics, [doctor]

The repository knows more, but its key is not for services. A process that ended leaves marks that
grow old, which is what the rules look for.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import psycopg
from prometheus_client import Gauge

from farmiq.plumbing import db, log

COPY, CHANGE, VERIFY, DRILL = "copy", "change", "verify", "drill"
EVERY_S = 60.0

LAST = Gauge(
    "farmiq_backup_last_seconds",
    "Unix time of the last whole copy, of the last change that is stored, of verify and drill",
    ["mark"],
)
FAILED = Gauge("farmiq_backup_failed", "1 if that found the backup wanting the last time", ["mark"])

_THERE = "select to_regclass('backup_marks') is not null"
_IS_NOTED = "select from backup_marks where mark = %s"
_NOTE = """
insert into backup_marks (mark, at, problem) values (%s, coalesce(%s, now()), %s)
on conflict (mark) do update set at = excluded.at, problem = excluded.problem
"""


@dataclass(frozen=True, slots=True)
class Mark:
    """`problem` is empty if all went well."""

    mark: str
    at: datetime
    problem: str = ""


def note(url: str, mark: str, *, at: datetime | None = None, problem: str = "") -> None:
    """As the owner. A database of an older version, which has no such table, notes nothing."""
    with psycopg.connect(url, connect_timeout=5) as connection:
        if connection.execute(_THERE).fetchone() == (True,):
            connection.execute(_NOTE, (mark, at, problem[:1000]))


def is_noted(url: str, mark: str) -> bool:
    with psycopg.connect(url, connect_timeout=5) as connection:
        there = connection.execute(_THERE).fetchone() == (True,)
        return there and connection.execute(_IS_NOTED, (mark,)).fetchone() is not None


async def read(tx: db.Connection) -> dict[str, Mark]:
    rows = await db.fetch_all(tx, "select mark, at, problem from backup_marks")
    return {mark: Mark(mark, at, problem) for mark, at, problem in rows}


async def watch(url: str) -> None:
    """Show the marks as metrics for ever. One that is not there is not shown."""
    mine = log.get("backup")
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(url, connect_timeout=5) as tx:
                show((await read(tx)).values())
        # Whatever is wrong with the database, the services themselves say and deal with.
        except (OSError, psycopg.Error) as error:
            mine.warning("backup.database_away", error=db.first_line(error))
        await asyncio.sleep(EVERY_S)


def show(marks: Iterable[Mark]) -> None:
    for noted in marks:
        LAST.labels(mark=noted.mark).set(noted.at.timestamp())
        FAILED.labels(mark=noted.mark).set(bool(noted.problem))
