"""Telemetry's part of the gateway's transaction: store readings, mark buckets, list series."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg

from farmiq.edge import alerts, outbox
from farmiq.edge.arrival import Arrival
from farmiq.edge.telemetry import rules, store
from farmiq.farm import buckets
from farmiq.farm.buckets import Series
from farmiq.messages.bus import BusEvent
from farmiq.messages.topics import Place
from farmiq.messages.wording import worded
from farmiq.plumbing import db

MAX_SERIES = 500  # of a device
TOO_MANY = "telemetry.too_many_metrics"
WRONG_CLOCK = "telemetry.wrong_clock"
# Readings are stored for at least a day, so the buckets of younger ones are open for certain.
CERTAINLY_OPEN = timedelta(hours=12)


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Store the readings and mark their buckets. An id that is stored already stays as it is.

    Returns the events for the cloud: all readings except those that it gets as part of a bucket.
    """
    if len(arrivals) < outbox.WORTH_A_COPY:
        await store.insert_readings(tx, arrivals)
    else:
        await _copy_or_insert(tx, arrivals)
    suspect = Counter(_wrong_clock(item.place) for item in arrivals if item.clock_suspect)
    await alerts.raise_all(tx, suspect)
    marked = await mark_dirty(tx, arrivals)
    if not marked.aggregated:
        return [arrival.event for arrival in arrivals]
    in_buckets = await _sent_as_buckets(tx, [a for a in arrivals if marked.is_aggregated(a)])
    return [arrival.event for arrival in arrivals if arrival.key not in in_buckets]


async def _copy_or_insert(tx: db.Connection, arrivals: Sequence[Arrival]) -> None:
    try:
        async with tx.transaction():
            await store.copy_readings(tx, arrivals)
    except psycopg.errors.UniqueViolation:
        await store.insert_readings(tx, arrivals)


@dataclass(frozen=True, slots=True)
class Marked:
    """`aggregated`: metrics that are synced as aggregates. `over_limit`: series without a mark."""

    aggregated: set[str]
    over_limit: set[Series]

    def is_aggregated(self, arrival: Arrival) -> bool:
        return (
            arrival.payload.metric_type in self.aggregated
            and rules.series_of(arrival) not in self.over_limit
        )


async def mark_dirty(tx: db.Connection, arrivals: Sequence[Arrival]) -> Marked:
    """Mark the buckets that the readings fall into, and add series that are new.

    In the transaction of the readings, and in one statement unless a series is new.
    """
    ranges = buckets.dirty_ranges(
        (rules.series_of(arrival), arrival.event.occurred_at) for arrival in arrivals
    )
    mark_id, aggregated, new = await store.insert_mark(tx, ranges)
    over_limit = await _add_series(tx, arrivals, new) if new else set()
    if over_limit:
        await store.ROLLUPS.delete_marks(tx, [mark_id])
        if within := [dirty for dirty in ranges if dirty.series not in over_limit]:
            await store.insert_mark(tx, within)
    return Marked(aggregated, over_limit)


async def _add_series(
    tx: db.Connection, arrivals: Sequence[Arrival], new: set[Series]
) -> set[Series]:
    """Add as many as a device may have; the rest is returned, and raises an alert."""
    known = await store.count_series(tx, sorted({series[:2] for series in new}))
    over_limit = rules.series_over_limit(new, known, limit=MAX_SERIES)
    added = new - over_limit
    await store.insert_series(
        tx, [a for a in rules.newest_by_series(arrivals) if rules.series_of(a) in added]
    )
    if over_limit:
        places = [a.place for a in arrivals if rules.series_of(a) in over_limit]
        await alerts.raise_all(
            tx, Counter(_too_many(place.tenant_id, place.device_id) for place in places)
        )
    return over_limit


def _wrong_clock(place: Place) -> alerts.Alert:
    """Of a barn, not of a device: after a power cut the clocks of all may be wrong."""
    return alerts.Alert(
        WRONG_CLOCK,
        f"{place.tenant_id}/{place.farm_id}/{place.barn_id}",
        "warning",
        worded(
            "a device here sends times that cannot be right, or what it stored more than a week "
            "ago. No rule looks at these readings, so nobody is told if they are bad: set its clock"
        ),
    )


def _too_many(tenant_id: str, device_id: str) -> alerts.Alert:
    return alerts.Alert(
        TOO_MANY,
        f"{tenant_id}/{device_id}",
        "warning",
        worded(
            "sends more than %(number)s different metrics. Readings of the others "
            "are stored and go to the cloud one by one, but have no latest value "
            "and no aggregates: correct the names",
            number=MAX_SERIES,
        ),
    )


async def _sent_as_buckets(
    tx: db.Connection, aggregated: Sequence[Arrival]
) -> set[tuple[str, UUID]]:
    """Keys of those that buckets will contain. The others are sent one by one (D-84)."""
    if not aggregated:
        return set()
    now: datetime = await db.fetch_value(tx, "select fn_now()")
    raw_from = datetime.min.replace(tzinfo=UTC)
    certainly_open = now - CERTAINLY_OPEN
    if any(arrival.event.occurred_at < certainly_open for arrival in aggregated):
        raw_from = await store.ROLLUPS.lock_raw_from_shared(tx) or certainly_open
    return {
        arrival.key
        for arrival in aggregated
        if buckets.has_bucket(arrival.event.occurred_at, now=now, raw_from=raw_from)
    }
