"""Computes marked days again and publishes the figures that changed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

import msgspec
import prometheus_client
import psycopg

from farmiq import crash
from farmiq.cloud import publishing
from farmiq.cloud.analytics import facts, handlers, marks, rules, store
from farmiq.cloud.analytics.marks import Mark
from farmiq.cloud.analytics.rules import Batch, Day, History
from farmiq.cloud.analytics.store import Change
from farmiq.cloud.figures import queries
from farmiq.messages import ids, kpi
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, log
from farmiq.plumbing.bus import amqp

# In one transaction: days whose facts are read, days whose figures are compared, waiting events.
MAX_DAYS = 60
MAX_FIGURE_DAYS = 120
MAX_MARKS = 2000
MAX_PENDING = 2000
# A batch that cannot be computed is tried again after so long; others go on.
PUT_OFF_S = 60.0

CHANGED = prometheus_client.Counter("farmiq_analytics_figures_total", "Figures that changed")
DAYS = prometheus_client.Counter("farmiq_analytics_days_total", "Days of batches computed again")
BEHIND = prometheus_client.Gauge(
    "farmiq_analytics_behind_seconds", "How long the longest due day waits to be computed again"
)


@dataclass(frozen=True)
class Recomputation:
    pool: db.Pool
    publisher: amqp.Publisher
    timeout_s: float

    async def mark_pending(self) -> dict[str, object]:
        """Mark the days of events that waited for their own service to store them."""
        async with db.transaction(self.pool) as tx:
            waiting = await marks.due_pending(tx, limit=MAX_PENDING)
            stored = await marks.stored_events(tx, waiting) if waiting else set()
            here = [event for event in waiting if (event.tenant_id, event.event_id) in stored]
            await handlers.mark_stored(tx, here)
            await marks.remove_pending(tx, stored)
            crash.here("analytics.before_pending_commit")
        return {"marked": len(here)}

    async def recompute(self) -> dict[str, object]:
        """Compute every batch that is due, one transaction each; returns what was done."""
        async with db.transaction(self.pool) as tx:
            due = await marks.due_batches(tx, limit=MAX_MARKS)
            BEHIND.set(await marks.behind_s(tx))
        counts = {"days": 0, "changed": 0}
        for tenant_id, batch_id in due:
            try:
                days, changed = await self._recompute_one(tenant_id, batch_id)
            except amqp.BusDownError as error:
                log.get("analytics").warning("analytics.bus_away", error=db.first_line(error))
                break
            except db.UNAVAILABLE:
                raise
            except (psycopg.Error, ArithmeticError, LookupError, TypeError, ValueError) as error:
                log.get("analytics").error(
                    "analytics.failed", tenant_id=tenant_id, name=batch_id,
                    error=db.first_line(error), exc_info=True,
                )  # fmt: skip
                async with db.transaction(self.pool) as tx:
                    await marks.put_off(tx, tenant_id, batch_id, delay_s=PUT_OFF_S)
                continue
            counts["days"] += days
            counts["changed"] += changed
        return {**counts}

    async def _recompute_one(self, tenant_id: str, batch_id: str) -> tuple[int, int]:
        """Returns how many days were computed and how many figures changed."""
        async with db.transaction(self.pool) as tx:
            if not await marks.lock_batch(tx, tenant_id, batch_id):
                return 0, 0
            taken = await marks.take_marks(tx, tenant_id, batch_id)
            if not taken:
                return 0, 0
            days, changes = await recompute_batch(tx, tenant_id, batch_id, taken)
            if changes:
                at = await store.save_figures(tx, changes)
                crash.here("analytics.before_publish")
                events = [_event(change, at) for change in changes]
                await publishing.publish(self.publisher, events, timeout_s=self.timeout_s)
                crash.here("analytics.after_publish")
                await store.notify(tx, tenant_id)
        crash.here("analytics.after_commit")
        DAYS.inc(days)
        CHANGED.inc(len(changes))
        return days, len(changes)


async def recompute_batch(
    tx: db.Connection, tenant_id: str, batch_id: str, taken: Sequence[Mark]
) -> tuple[int, list[Change]]:
    """Compute the marked facts and the figures they touch; what is too much is marked again."""
    batch = await store.find_batch(tx, tenant_id, batch_id)
    before = await store.days(tx, tenant_id, batch_id)
    if batch is None:
        await store.save_days(tx, tenant_id, batch_id, (), [day.kpi_date for day in before])
        shown = sorted(await store.figure_dates(tx, tenant_id, batch_id))
        return 0, _changes((), await store.figures(tx, tenant_id, batch_id, shown))
    standard = await queries.standard(
        tx, tenant_id, species=batch.species, breed=batch.breed, sex=batch.sex
    )
    dates = sorted(await _fact_dates(tx, batch, before, taken))
    looked_at, later = dates[:MAX_DAYS], dates[MAX_DAYS:]
    after, changed = _merged(before, await facts.read(tx, batch, looked_at), looked_at)
    if changed:
        new = {day.kpi_date: day for day in after}
        gone = [on for on in changed if on not in new]
        differing = [new[on] for on in changed if on in new]
        await store.save_days(tx, tenant_id, batch_id, differing, gone)
    if later:
        await marks.mark_dates(tx, batch, later)
    history = History(batch, standard, after)
    touched = rules.touched(History(batch, standard, before), history, changed)
    touched |= await _figure_dates(tx, batch, history, taken)
    shown = sorted(touched)
    if len(shown) > MAX_FIGURE_DAYS:
        await marks.mark_figures(tx, batch, first=shown[MAX_FIGURE_DAYS])
        shown = shown[:MAX_FIGURE_DAYS]
    stored = await store.figures(tx, tenant_id, batch_id, shown) if shown else []
    computed = [Change.of(batch, figure) for figure in rules.figures(history, shown)]
    return len(looked_at), _changes(computed, stored)


async def _fact_dates(
    tx: db.Connection, batch: Batch, before: Sequence[Day], taken: Sequence[Mark]
) -> set[date]:
    """The dates whose facts are marked; a mark without an end means all that may have some."""
    dates: set[date] = set()
    starts = [mark.first_date for mark in taken if mark.last_date is None and not mark.is_figures]
    if starts:
        first = min(starts)
        dates.update(await store.days_to_look_at(tx, batch, first=first))
        dates.update(day.kpi_date for day in before if day.kpi_date >= first)
    dates.update(mark.first_date for mark in taken if mark.last_date is not None)
    return dates


async def _figure_dates(
    tx: db.Connection, batch: Batch, history: History, taken: Sequence[Mark]
) -> set[date]:
    """The dates whose figures are marked, because the batch or its standard changed."""
    starts = [mark.first_date for mark in taken if mark.last_date is None]
    if not starts:
        return set()
    shown = await store.figure_dates(tx, batch.tenant_id, batch.batch_id)
    return {on for on in {*history.by_date, *shown} if on >= min(starts)}


def _merged(
    before: Sequence[Day], computed: Iterable[Day], looked_at: Collection[date]
) -> tuple[list[Day], list[date]]:
    """Pure: all days with those that were looked at as they are now, and which of them differ."""
    old, new = {day.kpi_date: day for day in before}, {day.kpi_date: day for day in computed}
    changed = [on for on in looked_at if old.get(on) != new.get(on)]
    unchanged = {on: day for on, day in old.items() if on not in set(looked_at)}
    merged: Mapping[date, Day] = unchanged | new
    return [merged[on] for on in sorted(merged)], changed


def _changes(figures: Iterable[Change], stored: Collection[Change]) -> list[Change]:
    """Pure: the figures that are new or differ from what is stored, and those to withdraw."""
    known = {(figure.kpi_date, figure.kpi_type): figure for figure in stored}
    changes = []
    for figure in figures:
        old = known.pop((figure.kpi_date, figure.kpi_type), None)
        if old is None:
            changes.append(figure)
        elif old != replace(figure, revision=old.revision):
            changes.append(replace(figure, revision=old.revision + 1))
    withdrawn = (old.withdrawn() for old in known.values() if old.value is not None)
    return [*changes, *withdrawn]


def _event(change: Change, at: datetime) -> BusEvent:
    """The event of a change; the same change has the same id, however often it is published.

    After a crash between publishing and the commit the revision may be of another content: that is
    another event.
    """
    payload = kpi.KpiDailyUpdated(
        kpi_date=change.kpi_date,
        kpi_type=change.kpi_type,
        value=change.value,
        unit=change.unit,
        source_event_count=change.source_event_count,
        batch_id=change.batch_id,
        expected_value=change.expected_value,
        difference=change.difference,
    )
    midnight = datetime(
        change.kpi_date.year, change.kpi_date.month, change.kpi_date.day, tzinfo=UTC
    )
    content = msgspec.json.encode(payload)
    parts = (change.tenant_id, change.batch_id, str(change.revision), content.decode())
    event_id = ids.derived(midnight, kpi.DAILY_UPDATED, *parts)
    return BusEvent(
        event_id=event_id,
        event_type=kpi.DAILY_UPDATED,
        tenant_id=change.tenant_id,
        farm_id=change.farm_id,
        barn_id=change.barn_id,
        device_id=None,
        session_id=None,
        occurred_at=at,
        trace_id=str(event_id),
        payload=msgspec.Raw(content),
    )
