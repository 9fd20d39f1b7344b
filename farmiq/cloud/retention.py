"""Removes old rows of a table, in small transactions that hold nobody up."""

from dataclasses import dataclass

from psycopg import sql

from farmiq.plumbing import db
from farmiq.plumbing.runtime.clock import AgeGuard
from farmiq.plumbing.runtime.schedule import Job

BATCH_ROWS = 5_000
EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Retention:
    """Rows of `table` stay for so many days from `since`, a column with an index."""

    table: str
    since: str
    days: float


def job(pool: db.Pool, retention: Retention, *, name: str) -> Job:
    """Every hour; any number of replicas may run it: the second of two has nothing to do."""

    async def purge_rows() -> dict[str, object]:
        return {"deleted": await purge(pool, retention)}

    return Job(name, EVERY_S, AgeGuard(pool, name).guard(purge_rows))


async def purge(pool: db.Pool, retention: Retention) -> int:
    statement = _DELETE.format(
        table=sql.Identifier(retention.table), since=sql.Identifier(retention.since)
    )
    deleted = 0
    while True:
        async with db.transaction(pool) as tx:
            cursor = await tx.execute(statement, (retention.days, BATCH_ROWS))
        deleted += cursor.rowcount
        if cursor.rowcount < BATCH_ROWS:
            return deleted


_DELETE = sql.SQL(
    """
    delete from {table} where ctid = any(array(
      select ctid from {table}
      where {since} < (select fn_now()) - %s * interval '1 day'
      limit %s))
    """
)
