"""Forgetting: rows of a table that nobody needs any more, in portions that nobody waits for."""

from dataclasses import dataclass

from psycopg import sql

from farmiq.plumbing import db
from farmiq.plumbing.clock import AgeGuard
from farmiq.plumbing.schedule import Job

PORTION = 5_000
EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Rows of `table` are kept for so many days from `since`, a column with an index."""

    table: str
    since: str
    days: float


def job(pool: db.Pool, what: Forgotten, *, name: str) -> Job:
    """Every hour; any number of replicas may do it, the second of two finds nothing left."""

    async def forget() -> dict[str, object]:
        return {"deleted": await forget_all(pool, what)}

    return Job(name, EVERY_S, AgeGuard(pool, name).guard(forget))


async def forget_all(pool: db.Pool, what: Forgotten) -> int:
    statement = _DELETE.format(table=sql.Identifier(what.table), since=sql.Identifier(what.since))
    deleted = 0
    while True:
        async with db.transaction(pool) as tx:
            cursor = await tx.execute(statement, (what.days, PORTION))
        deleted += cursor.rowcount
        if cursor.rowcount < PORTION:
            return deleted


_DELETE = sql.SQL(
    """
    delete from {table} where ctid = any(array(
      select ctid from {table}
      where {since} < (select fn_now()) - %s * interval '1 day'
      limit %s))
    """
)
