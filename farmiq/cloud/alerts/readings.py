"""Readings that were stored and that no rule has looked at yet: evaluated by series, many at once.

telemetry_readings --alert_readings--> [alerts] --alert_states, alert_rechecks, alert_episodes-->

A row of alert_readings is deleted in the transaction that takes its readings into the states, so
each reading counts once, whoever dies when. One instance at a time does this: of two, one would
find late what the other has not reached.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import prometheus_client
import psycopg

from farmiq import crash
from farmiq.cloud.alerts import handlers, looks, store
from farmiq.cloud.alerts.book import RuleBook
from farmiq.cloud.alerts.rules import READING, TELEMETRY, Series, Value
from farmiq.cloud.alerts.store import NewReadings
from farmiq.farm.alerts.rules import in_rule_unit
from farmiq.plumbing import db, log

# Rows, of 500 readings each at most, that are evaluated in one transaction.
MAX_ROWS = 40
PUT_OFF_S = 1.0

EVALUATED = prometheus_client.Counter(
    "farmiq_alert_readings_total", "Readings that alert rules were given"
)
BEHIND = prometheus_client.Gauge(
    "farmiq_alert_readings_behind_seconds", "How long the oldest reading waits for alert rules"
)


@dataclass(frozen=True)
class Readings:
    pool: db.Pool
    book: RuleBook

    async def run(self) -> dict[str, object]:
        """Evaluate what is due; a row that cannot be evaluated waits alone."""
        count = 0
        while True:
            async with db.transaction(self.pool) as tx:
                due, behind_s = await store.due_readings(tx, limit=MAX_ROWS)
            BEHIND.set(behind_s)
            if not due:
                return {"evaluated": count}
            await self.book.load({tenant_id for tenant_id, _ in due})
            taken = await self._evaluate_or_put_off(due)
            if taken is None:
                return {"evaluated": count}
            count += taken
            if len(due) < MAX_ROWS:
                return {"evaluated": count}

    async def _evaluate_or_put_off(self, rows: Sequence[tuple[str, int]]) -> int | None:
        """How many readings were evaluated; None if another instance is at it."""
        try:
            return await self._evaluate(rows)
        except db.UNAVAILABLE:
            raise
        except (psycopg.Error, ArithmeticError, LookupError, TypeError, ValueError) as error:
            if len(rows) == 1:
                tenant_id, row_id = rows[0]
                log.get("alerts").error(
                    "alerts.readings_failed", tenant_id=tenant_id, name=row_id,
                    error=db.first_line(error), exc_info=True,
                )  # fmt: skip
                async with db.transaction(self.pool) as tx:
                    await store.put_off_readings(tx, tenant_id, row_id, delay_s=PUT_OFF_S)
                return 0
        counts = [await self._evaluate_or_put_off([row]) for row in rows]
        return sum(count or 0 for count in counts)

    async def _evaluate(self, rows: Sequence[tuple[str, int]]) -> int | None:
        async with db.transaction(self.pool) as tx:
            if not await looks.lock_job(tx, "alerts.readings"):
                return None
            taken = await store.take_readings(tx, rows)
            values = [value for group in taken for value in self._looked_at(group)]
            if values:
                await handlers.evaluate(tx, self.book, values, now=await store.now(tx))
            crash.here("alerts.before_readings_commit")
        crash.here("alerts.after_readings_commit")
        count = sum(len(group.numbers) for group in taken)
        EVALUATED.inc(count)
        return count

    def _looked_at(self, group: NewReadings) -> Iterator[Value]:
        """The readings of a series that some rule looks at."""
        ruleset = self.book[group.tenant_id]
        signal = TELEMETRY + group.metric_type
        if not ruleset.in_scope(signal, group.farm_id, group.barn_id, group.device_id):
            return
        subject = f"{group.farm_id}/{group.barn_id}/{group.device_id}"
        series = Series(group.tenant_id, signal, subject)
        for at, number in zip(group.moments, group.numbers, strict=True):
            value = Value(
                series=series,
                at=at,
                value=in_rule_unit(group.metric_type, number, group.unit),
                farm_id=group.farm_id,
                barn_id=group.barn_id,
                device_id=group.device_id,
                event_id=READING,
            )
            if ruleset.looking_at(value):
                yield value
