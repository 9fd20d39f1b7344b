"""Removes old rows of tables, in small transactions that hold nobody up."""

from dataclasses import dataclass

from farmiq.plumbing import db
from farmiq.plumbing.runtime.clock import AgeGuard
from farmiq.plumbing.runtime.schedule import Job

BATCH_ROWS = 5_000
EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Retention:
    """Rows of `table` stay for so many days from `since`, and longer unless `where` is true.

    Both are SQL about the row `t`; `since` is best a column with an index. From a table that
    services may only add to, `function` deletes: it gets the days and the number of rows at most,
    and returns how many it deleted.
    """

    table: str
    since: str
    days: float
    where: str = "true"
    function: str | None = None

    @property
    def statement(self) -> bytes:
        """Deletes a batch. By ctid: a row that was updated meanwhile is not old any more."""
        if self.function:
            return f"select {self.function}(%s, %s)".encode()
        return f"""
            with gone as (
              delete from {self.table} where ctid = any(array(
                select t.ctid from {self.table} t
                where {self.since} < (select fn_now()) - %s * interval '1 day' and ({self.where})
                limit %s))
              returning 1
            )
            select count(*) from gone
            """.encode()  # noqa: S608


def job(pool: db.Pool, retention: Retention, *, name: str) -> Job:
    """Every hour; any number of replicas may run it: the second of two has nothing to do."""

    async def purge_rows() -> dict[str, object]:
        return {"deleted": await purge(pool, retention)}

    return Job(name, EVERY_S, AgeGuard(pool, name).guard(purge_rows))


async def purge(pool: db.Pool, *retentions: Retention) -> int:
    """Delete all that is over its time; returns how many rows."""
    deleted = 0
    for retention in retentions:
        count = BATCH_ROWS
        while count >= BATCH_ROWS:
            async with db.transaction(pool) as tx:
                count = await db.fetch_value(tx, retention.statement, retention.days, BATCH_ROWS)
            deleted += count
    return deleted
