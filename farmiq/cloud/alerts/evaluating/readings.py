"""Readings that were stored and that no rule has looked at yet: evaluated by series, many at once.

telemetry_readings --alert_readings--> [alerts] --alert_states, alert_rechecks, alert_episodes-->

A row of alert_readings is deleted in the transaction that takes its readings into the states, so
each reading counts once, whatever dies. One instance at a time does this: of two, one would
find late what the other has not reached.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import prometheus_client
import psycopg

from farmiq import crash
from farmiq.cloud.alerts.evaluating import signals, states
from farmiq.cloud.alerts.evaluating.book import RuleBook
from farmiq.cloud.alerts.evaluating.past import READING
from farmiq.cloud.alerts.evaluating.ruleset import TELEMETRY, Series, Value
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


@dataclass(frozen=True, slots=True)
class NewReadings:
    """Readings of one series in one unit, in the order of their own time."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    metric_type: str
    unit: str
    moments: Sequence[datetime]
    numbers: Sequence[float]


@dataclass(frozen=True)
class Readings:
    pool: db.Pool
    book: RuleBook

    async def run(self) -> dict[str, object]:
        """Evaluate what is due; a row that cannot be evaluated waits alone."""
        count = 0
        while True:
            async with db.transaction(self.pool) as tx:
                due, behind_s = await _due(tx, limit=MAX_ROWS)
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
                    await _put_off(tx, tenant_id, row_id, delay_s=PUT_OFF_S)
                return 0
        counts = [await self._evaluate_or_put_off([row]) for row in rows]
        return sum(count or 0 for count in counts)

    async def _evaluate(self, rows: Sequence[tuple[str, int]]) -> int | None:
        async with db.transaction(self.pool) as tx:
            if not await states.lock_job(tx, "alerts.readings"):
                return None
            taken = await _take(tx, rows)
            values = [value for group in taken for value in self._looked_at(group)]
            if values:
                await signals.evaluate(tx, self.book, values, now=await states.now(tx))
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


async def _due(tx: db.Connection, *, limit: int) -> tuple[list[tuple[str, int]], float]:
    """(tenant, id) of rows that no rule has looked at, oldest first, and the age of the oldest."""
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, id, extract(epoch from now() - stored_at)::float8 from alert_readings
        where due_at <= now() order by due_at, id limit %s
        """,
        limit,
    )
    return [(row[0], row[1]) for row in rows], max((row[2] for row in rows), default=0.0)


async def _take(tx: db.Connection, rows: Sequence[tuple[str, int]]) -> list[NewReadings]:
    """Delete these rows; their readings by series."""
    series = await db.fetch_all(
        tx,
        """
        with taken as (
          delete from alert_readings a using unnest(%s::text[], %s::bigint[]) as k(tenant_id, id)
          where a.tenant_id = k.tenant_id and a.id = k.id
          returning a.tenant_id, a.farms, a.barns, a.devices, a.metrics, a.units, a.moments,
            a.numbers
        )
        select t.tenant_id, r.farm_id, r.barn_id, r.device_id, r.metric_type, r.unit,
          array_agg(r.at order by r.at, r.number), array_agg(r.number order by r.at, r.number)
        from taken t, unnest(t.farms, t.barns, t.devices, t.metrics, t.units, t.moments, t.numbers)
          as r(farm_id, barn_id, device_id, metric_type, unit, at, number)
        group by t.tenant_id, r.farm_id, r.barn_id, r.device_id, r.metric_type, r.unit
        """,
        [tenant_id for tenant_id, _ in rows],
        [row_id for _, row_id in rows],
    )
    return [NewReadings(*row) for row in series]


async def _put_off(tx: db.Connection, tenant_id: str, row_id: int, *, delay_s: float) -> None:
    """A row that cannot be evaluated waits longer each time, up to ten minutes."""
    await tx.execute(
        """
        update alert_readings set attempts = attempts + 1,
          due_at = now() + fn_retry_delay(attempts, %s, 600)
        where tenant_id = %s and id = %s
        """,
        (delay_s, tenant_id, row_id),
    )
