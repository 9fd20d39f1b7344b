"""What one event from the bus does: it marks the farm-local days that it touches (C-112)."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from farmiq.cloud import marked_days
from farmiq.cloud.analytics import marks
from farmiq.cloud.analytics.marks import Pending
from farmiq.cloud.marked_days import Place
from farmiq.messages import telemetry
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db


async def mark_events(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """Mark the days of what is stored; what is not waits in analytics_pending until it is."""
    await marked_days.mark_places(tx, {*_early(events)}, early=True)
    awaited = {(event.tenant_id, event.event_id): event for event in _awaited(events)}
    stored = await marks.stored_events(tx, awaited.values()) if awaited else set()
    await mark_stored(tx, [awaited[key] for key in awaited if key in stored])
    await marked_days.mark_places(tx, {*_hours_of_the_cloud(events)})
    missing = [awaited[key] for key in awaited if key not in stored]
    if missing:
        await marks.add_pending(tx, missing)
    return len(events)


async def mark_stored(tx: db.Connection, events: Sequence[Pending]) -> None:
    """Mark the days of events that their own services have stored."""
    if events:
        await marked_days.mark_places(tx, await marks.places_of(tx, events))


def _early(events: Sequence[BusEvent]) -> Iterator[Place]:
    """Buckets, and readings that an earlier version had bound: others follow in the same hour."""
    for event in events:
        if event.event_type == telemetry.INGESTED and not event.clock_suspect:
            yield _quarter(event, event.occurred_at)
        elif event.event_type == telemetry.AGGREGATED:
            bucket = telemetry.read_aggregated(event.payload)
            if not bucket.made_by:
                yield _quarter(event, bucket.bucket_start_at or event.occurred_at)


def _hours_of_the_cloud(events: Sequence[BusEvent]) -> Iterator[Place]:
    """Hours that the cloud computed: stored before published, and each hour of a day comes."""
    for event in events:
        if event.event_type == telemetry.AGGREGATED:
            bucket = telemetry.read_aggregated(event.payload)
            if bucket.made_by and bucket.aggregation_window == "1h":
                yield _quarter(event, bucket.bucket_start_at or event.occurred_at)


def _quarter(event: BusEvent, at: datetime) -> Place:
    """No zone's midnight lies within a quarter of an hour: one place for all its readings."""
    begin_at = at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0)
    return Place(event.tenant_id, event.farm_id, event.barn_id, None, begin_at)


def _awaited(events: Sequence[BusEvent]) -> Iterator[Pending]:
    """Events that count once their row is stored; of telemetry the hours that an edge sent."""
    for event in events:
        family = event.event_type.partition(".")[0]
        place = (event.tenant_id, event.event_id, family, event.farm_id, event.barn_id)
        if family != "telemetry":
            yield Pending(*place)
        elif event.event_type == telemetry.AGGREGATED and isinstance(event.device_id, str):
            bucket = telemetry.read_aggregated(event.payload)
            if bucket.aggregation_window == "1h" and not bucket.made_by:
                begin_at = bucket.bucket_start_at or event.occurred_at
                count = bucket.count or 1
                yield Pending(*place, event.device_id, bucket.metric_type, begin_at, count)
