"""Pure: what happened to a batch, day by day: placing, medicine, losses, feed, alerts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from statistics import fmean
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.batches.view import Batch
from farmiq.ui import sentences

# More dead than so many times the mean of the days before, and not just one or two animals.
UNUSUAL_FACTOR = 2.5
UNUSUAL_DAYS = 7
MIN_UNUSUAL = 3
# On a day the worst comes first; the rest in this order.
ORDER = (
    "safe", "deaths", "alert", "treatment", "vaccination", "note", "lot", "target", "closed",
    "placed",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something on a date; `kind` says which sentence of the page it is.

    `value` is a number of animals or kilograms, `name` a product, lot or text, `until` the first
    day on which animals may be sold after a medicine.
    """

    on: date
    kind: str
    key: str = ""
    value: float | None = None
    name: str = ""
    until: date | None = None
    withdrawal_days: int | None = None
    tone: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class CalendarDay:
    on: date
    age_days: int
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Losses:
    """The dead and culled animals of a date."""

    on: date
    dead: float
    culled: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    episode_id: UUID
    severity: str
    message: str
    state: str
    opened_at: datetime


def calendar(
    batch: Batch,
    *,
    records: Sequence[Mapping[str, Any]],
    lots: Sequence[Mapping[str, Any]],
    alerts: Sequence[Alert],
    losses: Sequence[Losses],
    zone: ZoneInfo,
) -> list[CalendarDay]:
    """All events, the newest day first; what is still to come is at the top."""
    noted = [event for record in records for event in _record(record, zone)]
    events = [
        *_milestones(batch),
        *_sale(batch, noted),
        *noted,
        *_lots(lots, zone),
        *_alerts(alerts, zone),
        *unusual_deaths(batch.batch_id, losses),
    ]
    events.sort(key=lambda event: (-event.on.toordinal(), ORDER.index(event.kind), event.key))
    return [
        CalendarDay(on, batch.age_on(on), tuple(of_day))
        for on, of_day in groupby(events, key=lambda event: event.on)
    ]


def _milestones(batch: Batch) -> Iterator[Event]:
    yield Event(
        on=batch.placed_on, kind="placed", key=batch.batch_id, value=float(batch.placed_count)
    )
    if batch.target_on:
        yield Event(
            on=batch.target_on, kind="target", key=batch.batch_id, value=batch.target_weight_kg
        )
    if batch.closed_on:
        yield Event(on=batch.closed_on, kind="closed", key=batch.batch_id)


def _sale(batch: Batch, noted: Sequence[Event]) -> Iterator[Event]:
    """From when animals may be sold, if a medicine has withdrawal days."""
    if batch.safe_to_sell_from and (batch.is_in_withdrawal or any(event.until for event in noted)):
        tone = "warn" if batch.is_in_withdrawal else "good"
        yield Event(on=batch.safe_to_sell_from, kind="safe", key=batch.batch_id, tone=tone)


def _record(record: Mapping[str, Any], zone: ZoneInfo) -> Iterator[Event]:
    on = record["occurred_at"].astimezone(zone).date()
    kind = record["record_type"]
    if kind in ("treatment", "vaccination"):
        days = record["withdrawal_days"]
        yield Event(
            on=on,
            kind=kind,
            key=record["record_id"],
            value=float(record["value"]),
            name=record["product"] or "",
            withdrawal_days=days,
            until=on + timedelta(days=days) if days else None,
            tone="info",
        )
    elif kind in ("note", "welfare", "housing"):
        yield Event(on=on, kind="note", key=record["record_id"], name=str(record["value"]))


def _lots(lots: Iterable[Mapping[str, Any]], zone: ZoneInfo) -> Iterator[Event]:
    for lot in lots:
        yield Event(
            on=lot["occurred_at"].astimezone(zone).date(),
            kind="lot",
            key=str(lot["event_id"]),
            value=lot["quantity_kg"],
            name=lot["feed_lot_id"],
        )


def _alerts(alerts: Iterable[Alert], zone: ZoneInfo) -> Iterator[Event]:
    """One event for all alerts of a day that say the same; it leads to the newest of them."""
    by_text: dict[tuple[date, str], list[Alert]] = {}
    for alert in alerts:
        on = alert.opened_at.astimezone(zone).date()
        by_text.setdefault((on, sentences.shown(alert.message, zone.key)), []).append(alert)
    for (on, message), same in by_text.items():
        newest = max(same, key=lambda alert: alert.opened_at)
        is_open = any(alert.state in ("active", "acknowledged") for alert in same)
        grave = any(alert.severity in ("critical", "security") for alert in same)
        yield Event(
            on=on,
            kind="alert",
            key=str(newest.episode_id),
            value=float(len(same)),
            name=message,
            tone=("bad" if grave else "warn") if is_open else "muted",
            href=f"/alerts/{newest.episode_id}",
        )


def unusual_deaths(batch_id: str, losses: Sequence[Losses]) -> list[Event]:
    """Days with far more dead animals than the days before; the first week has no usual yet."""
    unusual = []
    for index, day in enumerate(losses):
        before = [
            earlier.dead
            for earlier in losses[max(0, index - UNUSUAL_DAYS) : index]
            if (day.on - earlier.on).days <= UNUSUAL_DAYS
        ]
        if len(before) < UNUSUAL_DAYS or day.dead < MIN_UNUSUAL:
            continue
        if day.dead > UNUSUAL_FACTOR * fmean(before):
            key = f"{batch_id}|{day.on}"
            unusual.append(Event(on=day.on, kind="deaths", key=key, value=day.dead, tone="bad"))
    return unusual
