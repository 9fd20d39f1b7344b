"""Orders about dead letters that people gave on a page: done one after the other.

dead_letter_orders --> [orders] --> the queues they came from, dead_letter_actions; the order says
what became of each letter
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
from aio_pika.abc import AbstractConnection
from psycopg.types.json import Jsonb

from farmiq.cloud.deadletter import handlers, rules, store
from farmiq.cloud.deadletter.handlers import Order, Outcome
from farmiq.cloud.deadletter.jobs import DeadLetterJob
from farmiq.cloud.deadletter.rules import BusFilter
from farmiq.config import CloudSettings
from farmiq.plumbing import db, log
from farmiq.plumbing.bus import amqp

EVERY_S = 1.0
# An order whose service died is taken up after that; the slowest sends a letter every ten seconds.
CLAIM_S = 60
# Outcomes that an order shows; the audit log has all.
MAX_OUTCOMES = 500


@dataclass(slots=True)
class Progress:
    """What was done of an order since it was last written."""

    done: int = 0
    failed: int = 0
    outcomes: list[dict[str, Any]] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.done += outcome.why is None
        self.failed += outcome.why is not None
        self.outcomes.append(
            {
                **outcome.described(),
                "event_type": outcome.letter.event_type,
                "reason": outcome.letter.reason[: rules.MAX_SHOWN_CHARS],
            }
        )


class Orders:
    def __init__(self, settings: CloudSettings, pool: db.Pool, job: DeadLetterJob) -> None:
        self._url, self._tls = settings.amqp_url.get_secret_value(), settings.tls
        self._pool, self._job = pool, job
        self._log = log.get("cloud-deadletter-service")

    async def run_once(self) -> dict[str, object]:
        """Do the oldest order, if there is one; then look at the letters again."""
        async with db.transaction(self._pool) as tx:
            claimed = await _claim(tx)
        if claimed is None:
            return {}
        order_id, order = claimed
        try:
            async with amqp.connection(self._url, name="dead-letters", tls=self._tls) as opened:
                await self._do(opened, order_id, order)
        except (*amqp.UNAVAILABLE, psycopg.errors.LockNotAvailable) as error:
            self._log.warning("deadletter.order_failed", reason=amqp.why(error))
            await self._write(order_id, Progress(), error=_why(error))
        await self._job.run_once()
        return {"order": str(order_id)}

    async def _do(self, opened: AbstractConnection, order_id: UUID, order: Order) -> None:
        progress = Progress()
        size = max(1, min(handlers.BATCH, int(order.rate_per_s)))
        async for outcome in handlers.move(opened, self._pool, order):
            progress.add(outcome)
            if len(progress.outcomes) >= size:
                await self._write(order_id, progress)
                progress = Progress()
        await self._write(order_id, progress, ended=True)

    async def _write(
        self, order_id: UUID, progress: Progress, *, ended: bool = False, error: str | None = None
    ) -> None:
        async with db.transaction(self._pool) as tx:
            tenant_id = await _write(tx, order_id, progress, ended=ended, error=error)
            await store.notify_pages(tx, {tenant_id})


def _why(error: BaseException) -> str:
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return "others move dead letters at the moment; order it again"
    return f"the message bus does not answer ({amqp.why(error)}); order it again"


async def _claim(tx: db.Connection) -> tuple[UUID, Order] | None:
    """The oldest order that nobody works on; one that was begun goes on with what is left of it."""
    rows = await db.fetch_all(
        tx,
        """
        with claimed as (
          update dead_letter_orders set state = 'running',
            claimed_until = fn_now() + %s * interval '1 second'
          where order_id = (
            select order_id from dead_letter_orders
            where state = 'queued' or (state = 'running' and (claimed_until < fn_now()
              or claimed_until > fn_now() + 2 * %s * interval '1 second'))
            order by ordered_at, order_id limit 1 for update skip locked)
          returning *
        )
        select order_id, action, queue, reason, tenant_id, event_ids, ordered_by,
          greatest(max_letters - done, 0), rate_per_s, dry_run, note
        from claimed
        """,
        CLAIM_S,
        CLAIM_S,
    )
    if not rows:
        return None
    order_id, action, queue, reason, tenant_id, event_ids, actor, left, rate_per_s, dry, note = (
        rows[0]
    )
    chosen = BusFilter(
        queue=queue, reason=reason, tenant_id=tenant_id, event_ids=frozenset(event_ids)
    )
    return order_id, Order(action, chosen, actor, left, rate_per_s, dry_run=dry, note=note or None)


async def _write(
    tx: db.Connection, order_id: UUID, progress: Progress, *, ended: bool, error: str | None
) -> str:
    """Returns whose order it is."""
    cursor = await tx.execute(
        """
        update dead_letter_orders set done = done + %(done)s, failed = failed + %(failed)s,
          outcomes = outcomes || (
            select coalesce(jsonb_agg(e.outcome order by e.position), '[]')
            from jsonb_array_elements(%(outcomes)s) with ordinality e(outcome, position)
            where e.position <= %(max)s - jsonb_array_length(outcomes)),
          claimed_until = fn_now() + %(claim_s)s * interval '1 second', state = %(state)s,
          error = %(error)s, ended_at = case when %(state)s <> 'running' then fn_now() end
        where order_id = %(order)s returning tenant_id
        """,
        {
            "order": order_id,
            "done": progress.done,
            "failed": progress.failed,
            "outcomes": Jsonb(progress.outcomes),
            "max": MAX_OUTCOMES,
            "claim_s": CLAIM_S,
            "state": "failed" if error else "done" if ended else "running",
            "error": error,
        },
    )
    ((tenant_id,),) = await cursor.fetchall()
    return str(tenant_id)
