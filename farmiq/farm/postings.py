"""Pure: what people post over HTTP, barn records and feed, as events; the same at edge and cloud.

A posting is a body, the person and the Idempotency-Key; `event` is what becomes of it. The hash of
the content tells a repeat from another posting under the same key.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

import msgspec

from farmiq.messages import barn, catalogue, feed
from farmiq.messages.bus import BusEvent
from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import BATCH_DERIVED, QuantityKg, Rules, require_utc
from farmiq.messages.wording import worded

# A clock may be ahead by so much; what is later has not happened yet.
MAX_AHEAD = timedelta(minutes=5)

_UNSET = msgspec.UNSET
_MEDICINE = ("product", "dose", "dose_unit", "withdrawal_days")


class Posting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and when it happened; `occurred_at` is now if it is absent."""

    farm_id: Id
    barn_id: Id
    occurred_at: Instant | msgspec.UnsetType = _UNSET

    def __post_init__(self) -> None:
        require_utc(self.occurred_at)


class RecordPosted(barn.RecordContent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /api/v1/barn/records; `occurred_at` is now if it is absent."""

    farm_id: Id
    barn_id: Id
    occurred_at: Instant | msgspec.UnsetType = _UNSET

    def __post_init__(self) -> None:
        require_utc(self.occurred_at)
        super().__post_init__()

    def _litres(self) -> str | None:
        given = self.unit not in (None, _UNSET)
        if self.record_type == "water" and given and self.unit not in barn.LITRES_OF:
            return worded("`unit` of water is one of %(units)s", units=", ".join(barn.LITRES_OF))
        return None

    def _no_medicine(self) -> str | None:
        given = [name for name in _MEDICINE if getattr(self, name) not in (None, _UNSET)]
        if given and self.record_type not in barn.MEDICINES:
            return worded("`%(field)s` is for treatments and vaccinations", field=given[0])
        return None

    rules: ClassVar[Rules] = (*barn.RecordContent.rules, _litres, _no_medicine)


class LotPosted(Posting, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /api/v1/feed/lots. `device_id` is the silo that the lot went into."""

    feed_lot_id: Id
    quantity_kg: QuantityKg
    feed_product_id: Id | msgspec.UnsetType | None = _UNSET
    device_id: Id | msgspec.UnsetType | None = _UNSET
    replaces: UUID | msgspec.UnsetType | None = _UNSET


class IntakePosted(Posting, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /api/v1/feed/intakes. `device_id` is the silo that the feed came from."""

    quantity_kg: QuantityKg
    source: feed.Source = "MANUAL"
    feed_lot_id: Id | msgspec.UnsetType | None = _UNSET
    device_id: Id | msgspec.UnsetType | None = _UNSET
    batch_id: Id | msgspec.UnsetType | None = _UNSET
    replaces: UUID | msgspec.UnsetType | None = _UNSET


Body = RecordPosted | LotPosted | IntakePosted


@dataclass(frozen=True, slots=True)
class Posted:
    """An event that somebody posted. `subject`: the record, the lot or the intake that it is of."""

    event: BusEvent
    subject: str
    replaces: str | None
    idempotency_key: str
    content_hash: bytes
    posted_by: str


@dataclass(frozen=True, slots=True)
class Stay:
    """When a batch is in which barn, both days included; `on_date` is the day that is asked for."""

    farm_id: str
    barn_id: str
    placed_on: date
    closed_on: date | None
    on_date: date | None

    def problem(self, batch_id: str, event: BusEvent) -> str | None:
        """Why the event cannot be of this batch."""
        if (self.farm_id, self.barn_id) != (event.farm_id, event.barn_id):
            return worded(
                "the batch %(batch)s is in %(farm)s/%(barn)s",
                batch=repr(batch_id), farm=self.farm_id, barn=self.barn_id,
            )  # fmt: skip
        if self.on_date is None:
            return None
        if self.placed_on <= self.on_date <= (self.closed_on or date.max):
            return None
        if self.closed_on is None:
            return worded(
                "the batch %(batch)s is in that barn from %(first)s, not on %(day)s",
                batch=repr(batch_id), first=self.placed_on, day=self.on_date,
            )  # fmt: skip
        return worded(
            "the batch %(batch)s is in that barn from %(first)s to %(last)s, not on %(day)s",
            batch=repr(batch_id), first=self.placed_on, last=self.closed_on, day=self.on_date,
        )  # fmt: skip


def event_type(body: Body) -> str:
    match body:
        case RecordPosted():
            return barn.RECORD_CREATED
        case LotPosted():
            return feed.LOT_RECEIVED
        case IntakePosted():
            return feed.INTAKE_RECORDED


def future(at: datetime | msgspec.UnsetType, now: datetime) -> str | None:
    """What is wrong with a moment that has not come yet."""
    if at is _UNSET or at <= now + MAX_AHEAD:
        return None
    return worded(
        "is in the future: it is %(instant)s now",
        instant=f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )


def happened_at(body: Body, now: datetime) -> datetime:
    return now if body.occurred_at is _UNSET else body.occurred_at


def posted(
    body: Body, raw: bytes, *, tenant_id: str, by: str, key: str, event_id: UUID, trace_id: str,
    now: datetime, batch_id: str | None = None,
) -> Posted:  # fmt: skip
    """The event of a body. Numbers stay as written.

    `batch_id` is the batch that was found for a body that names none.
    """
    kind = event_type(body)
    subject, more = _event_of(body, event_id, by, now)
    names = catalogue.BUS[kind].payload.__struct_fields__
    written = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    payload = {**more, **{name: written[name] for name in names if name in written}}
    event = BusEvent(
        event_id=event_id,
        event_type=kind,
        tenant_id=tenant_id,
        farm_id=body.farm_id,
        barn_id=body.barn_id,
        device_id=getattr(body, "device_id", None) or _UNSET,
        occurred_at=happened_at(body, now),
        trace_id=trace_id,
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )
    if batch_id is not None:
        event = with_batch(event, batch_id)
    replaces = str(body.replaces) if body.replaces else None
    return Posted(event, subject, replaces, key, content_hash(body), by)


def with_batch(event: BusEvent, batch_id: str) -> BusEvent:
    """The event of the batch that was in its barn; it says that nobody named it (D-460)."""
    fields: dict[str, Any] = msgspec.json.decode(event.payload, type=dict[str, msgspec.Raw])
    body = {**fields, "batch_id": batch_id, BATCH_DERIVED: True}
    return msgspec.structs.replace(event, payload=msgspec.Raw(msgspec.json.encode(body)))


def shown(event: BusEvent, columns: Sequence[str]) -> dict[str, Any]:
    """The event as a row of these columns; what it does not say is None."""
    fields = {**msgspec.structs.asdict(event), **msgspec.json.decode(event.payload)}
    given = {name: value for name, value in fields.items() if value is not _UNSET}
    return {name: given.get(name) for name in columns}


def _event_of(body: Body, event_id: UUID, by: str, now: datetime) -> tuple[str, Mapping[str, Any]]:
    """(subject, what the payload has beyond the body)."""
    match body:
        case RecordPosted():
            record_id = str(event_id)
            more = {
                "record_id": record_id, "unit": None, "recorded_by_ref": by, "recorded_at": now,
            }  # fmt: skip
            return record_id, more
        case LotPosted():
            return body.feed_lot_id, {}
        case IntakePosted():
            return str(event_id), {"source": body.source}


def content_hash(body: Body) -> bytes:
    """Of the request: what was left to us is not part of it, nor the zone of its moment."""
    fields = {
        name: value.astimezone(UTC) if isinstance(value, datetime) else value
        for name in body.__struct_fields__
        if (value := getattr(body, name)) is not _UNSET
    }
    return hashlib.sha256(
        event_type(body).encode() + b"\x1f" + msgspec.json.encode(fields, order="sorted")
    ).digest()
