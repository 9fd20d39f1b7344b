"""Making buckets again: what was marked, in bounded portions, each portion one transaction.

The marks are read first and the readings after them, so every reading that a mark stands for is
seen; a mark that is added meanwhile stays for the next portion.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
import prometheus_client

from farmiq.edge import outbox
from farmiq.edge.telemetry import buckets, making, marking, owing, zoning
from farmiq.edge.telemetry.buckets import Series, Span
from farmiq.messages import ids, telemetry
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

MOST_HOURS = 1000
MOST_NAMED = 50_000  # hours that marks name, the same ones again and again included
MOST_TOLD = 500

REMADE = prometheus_client.Counter(
    "farmiq_telemetry_buckets_made_total", "Buckets made, or made again", ["window"]
)
TOO_LATE = prometheus_client.Counter(
    "farmiq_telemetry_hours_too_late_total",
    "Hours of a series that readings came for after their bucket was closed",
)
TOLD = prometheus_client.Counter(
    "farmiq_telemetry_buckets_told_total", "Buckets owed to the cloud and written to the outbox"
)


@dataclass(frozen=True, slots=True)
class Done:
    """What one portion did."""

    marks: int = 0
    minutes: int = 0
    hours: int = 0
    days: int = 0
    too_late: int = 0
    told: int = 0

    @property
    def is_nothing(self) -> bool:
        return self == Done()


@dataclass(frozen=True, slots=True)
class Zones:
    """Whose days are whose. `fallback` is the zone of farms that have none of their own."""

    of_farms: dict[tuple[str, str], str]
    fallback: str

    def of(self, tenant_id: str, farm_id: str) -> str:
        return self.of_farms.get((tenant_id, farm_id), self.fallback)

    def in_use(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for (tenant_id, _), zone in self.of_farms.items():
            found.setdefault(tenant_id, [self.fallback]).append(zone)
        return found


async def begin(pool: db.Pool, *, timezone: str, keep_days: int) -> None:
    """Before the first portion: how far back readings are believed, and in which zone days are."""
    async with db.transaction(pool) as tx:
        before = await zoning.fallback(tx)
        if before == timezone:
            return
        await marking.begin_raw_from(tx, keep_days=keep_days)
        await zoning.change_fallback(tx, timezone)
        await zoning.rezone_all(tx)


async def once(
    pool: db.Pool,
    *,
    timezone: str,
    settle_s: float = 0.0,
    most_hours: int = MOST_HOURS,
    upto: int | None = None,
) -> Done:
    """One portion: buckets, newest readings, and what the cloud is owed, in one transaction.

    Nothing is done while somebody else is at it. Marks later than `upto` are left for later.
    """
    async with db.transaction(pool) as tx:
        if not await marking.lead(tx):
            return Done()
        marks, touched = await _portion(tx, most_hours=most_hours, upto=upto)
        done = await _remake(tx, marks, touched, timezone=timezone) if marks else Done()
        told = await _tell(tx, settle_s=settle_s)
    _count(done)
    TOLD.inc(told)
    return replace(done, told=told)


async def all_marked(pool: db.Pool, *, timezone: str, portions: int = 1000) -> bool:
    """Portions until no mark is left; False if there were too many, or somebody is at it."""
    for _ in range(portions):
        done = await once(pool, timezone=timezone, settle_s=_NEVER_S)
        if done.marks == 0:
            break
    async with pool.connection() as connection:
        return (await marking.dirt(connection)).marks == 0


_NEVER_S = 1e9  # telling the cloud is not what is waited for


async def _portion(
    tx: db.Connection, *, most_hours: int, upto: int | None
) -> tuple[list[int], list[Span]]:
    """As many marks as name about `most_hours` different hours of series, but at least one.

    Many marks of the same hours, as a busy minute leaves them, are one portion.
    """
    marks = await marking.marks(tx, most=MOST_NAMED, upto=upto)
    while True:
        touched = await marking.marked(tx, marks)
        if len(touched) <= most_hours or len(marks) == 1:
            return marks, touched
        marks = marks[: len(marks) // 2]


async def _remake(
    tx: db.Connection, marks: Sequence[int], touched: Sequence[Span], *, timezone: str
) -> Done:
    raw_from = await marking.raw_from(tx)
    open_ = [span for span in touched if span.hour_at >= raw_from]
    zones = Zones(await zoning.zones(tx), timezone)
    minutes = await making.remake_minutes(tx, open_)
    before = await making.farms_of_hours(tx, open_)
    changed = await making.remake_hours(tx, open_)
    days = await _remake_days(tx, changed, before, zones=zones, owed=_owed(open_))
    await making.renew_latest(tx, touched)
    await marking.forget_marks(tx, marks)
    return Done(len(marks), minutes, len(changed), days, len(touched) - len(open_))


def _owed(touched: Sequence[Span]) -> set[Series]:
    return {(span.tenant_id, span.device_id, span.metric_type) for span in touched if span.owed}


async def _remake_days(
    tx: db.Connection,
    changed: Sequence[tuple[Series, datetime, str]],
    before: dict[tuple[Series, datetime], str],
    *,
    zones: Zones,
    owed: set[Series],
) -> int:
    """The days of hours that changed; of an hour that changed zones, those it left as well."""
    here = [(series, at, zones.of(series[0], farm_id)) for series, at, farm_id in changed]
    left = [
        (series, at, zones.of(series[0], before[series, at]))
        for series, at, zone in here
        if zones.of(series[0], before.get((series, at), "")) != zone and (series, at) in before
    ]
    in_use = zones.in_use()
    forgotten = await owing.forget_days(tx, buckets.days(left, in_use)) if left else []
    days = buckets.days([*here, *left], in_use)
    count = await making.remake_days(tx, days, owed=owed, fallback=zones.fallback)
    if forgotten:
        await owing.owe_days(tx, forgotten)
    return count


async def rezone_one(pool: db.Pool, *, timezone: str) -> bool:
    """Make all days of one series again, whose farm's zone was changed; False if none waits."""
    async with db.transaction(pool) as tx:
        await marking.wait_to_lead(tx)
        series = await zoning.next_rezoned(tx)
        if series is None:
            return False
        zones = Zones(await zoning.zones(tx), timezone)
        hours = [
            (series, at, zones.of(series[0], farm_id))
            for at, farm_id in await zoning.hours_of(tx, series)
        ]
        forgotten = await owing.forget_all_days(tx, series)
        days = buckets.days(hours, zones.in_use())
        await making.remake_days(tx, days, owed=set(), fallback=timezone)
        await owing.owe_days(tx, forgotten)
        await zoning.forget_rezoned(tx, series)
    return True


async def _tell(tx: db.Connection, *, settle_s: float) -> int:
    told = await owing.owed(tx, settle_s=settle_s, most=MOST_TOLD)
    if told:
        await outbox.append(tx, [event(bucket) for bucket in told])
        await owing.note_told(tx, told)
    return len(told)


def event(bucket: owing.Owed) -> BusEvent:
    """The same bucket with the same readings has the same id; with more readings, another."""
    payload = telemetry.TelemetryAggregated(
        metric_type=bucket.metric_type,
        aggregation_window=bucket.window,
        avg_value=bucket.avg_value,
        min_value=bucket.min_value,
        max_value=bucket.max_value,
        unit=bucket.unit,
        count=bucket.count,
        bucket_start_at=bucket.bucket_start_at,
        bucket_end_at=bucket.bucket_end_at,
    )
    event_id = ids.derived(
        bucket.bucket_start_at,
        telemetry.AGGREGATED,
        bucket.tenant_id,
        bucket.device_id,
        bucket.metric_type,
        bucket.window,
        bucket.bucket_start_at.isoformat(),
        str(bucket.count),
    )
    return BusEvent(
        event_id=event_id,
        event_type=telemetry.AGGREGATED,
        tenant_id=bucket.tenant_id,
        farm_id=bucket.farm_id,
        barn_id=bucket.barn_id,
        device_id=bucket.device_id,
        session_id=None,
        occurred_at=bucket.bucket_start_at,
        trace_id=f"telemetry-agg-{bucket.id}",
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )


def _count(done: Done) -> None:
    for window, count in (("1m", done.minutes), ("1h", done.hours), ("1d", done.days)):
        REMADE.labels(window=window).inc(count)
    TOO_LATE.inc(done.too_late)
