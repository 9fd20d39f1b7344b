"""Pure: the intakes in events of devices (C-93), and lots that clients send (C-95)."""

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from farmiq.edge.arrival import Arrival
from farmiq.farm import postings
from farmiq.farm.postings import Posted
from farmiq.messages import feed, ids
from farmiq.messages.bus import BusEvent
from farmiq.messages.feed import FeedDispensed, FeedImported, FeedIntakeRecorded, Source
from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import QuantityKg, require_utc

DEFAULT_SOURCE: Source = "SILO_AUTO"
# The device's own payload follows, byte for byte: a number keeps the digits it was sent with.
_WITH_SOURCE = b'{"source":"' + DEFAULT_SOURCE.encode() + b'",'


@dataclass(frozen=True, slots=True)
class Intake:
    """One row of feed_intakes, and its event for the cloud."""

    event: BusEvent
    source: Source
    quantity_kg: float
    feed_lot_id: str | None = None
    parent_event_id: UUID | None = None
    import_row: int | None = None
    import_ref: str | None = None
    clock_suspect: bool = False
    batch_id: str | None = None
    recorded_by: str | None = None

    @property
    def key(self) -> tuple[str, UUID]:
        return self.event.tenant_id, self.event.event_id

    @property
    def device_id(self) -> str | None:
        return self.event.device_id or None

    @property
    def occurred_at(self) -> datetime:
        return self.event.occurred_at


def intakes_of(arrival: Arrival) -> list[Intake]:
    """The intakes of a feed.dispensed or a feed.imported."""
    if isinstance(arrival.payload, FeedDispensed):
        return [_dispensed(arrival, arrival.payload)]
    return _imported(arrival, arrival.payload)


def _dispensed(arrival: Arrival, dispensed: FeedDispensed) -> Intake:
    """Under the device's own id; the payload is the device's, and its source (C-109)."""
    raw = bytes(arrival.event.payload)
    payload = _WITH_SOURCE + raw[1:] if dispensed.source is msgspec.UNSET else raw
    return Intake(
        event=msgspec.structs.replace(
            arrival.event, event_type=feed.INTAKE_RECORDED, payload=msgspec.Raw(payload)
        ),
        source=DEFAULT_SOURCE if dispensed.source is msgspec.UNSET else dispensed.source,
        quantity_kg=dispensed.quantity_kg,
        feed_lot_id=dispensed.feed_lot_id or None,
        clock_suspect=arrival.clock_suspect,
        batch_id=dispensed.batch_id or None,
    )


def _imported(arrival: Arrival, imported: FeedImported) -> list[Intake]:
    as_sent = msgspec.json.decode(arrival.event.payload, type=_Rows).rows
    return [
        Intake(
            event=msgspec.structs.replace(
                arrival.event,
                event_id=_row_id(arrival.event, number),
                event_type=feed.INTAKE_RECORDED,
                payload=msgspec.Raw(b'{"source":"IMPORT",' + _without_source(raw)[1:]),
            ),
            source="IMPORT",
            quantity_kg=row.quantity_kg,
            feed_lot_id=row.feed_lot_id,
            parent_event_id=arrival.event.event_id,
            import_row=number,
            import_ref=row.ref,
            clock_suspect=arrival.clock_suspect,
            batch_id=row.batch_id or None,
        )
        for number, (row, raw) in enumerate(zip(imported.rows, as_sent, strict=True), start=1)
    ]


def entered(posted: Posted) -> Intake:
    """The intake that somebody posted."""
    event = posted.event
    taken = msgspec.json.decode(event.payload, type=FeedIntakeRecorded)
    return Intake(
        event=event,
        source=taken.source,
        quantity_kg=taken.quantity_kg,
        feed_lot_id=taken.feed_lot_id or None,
        batch_id=taken.batch_id or None,
        recorded_by=posted.posted_by,
    )


def with_batch(intake: Intake, batch_id: str) -> Intake:
    """The intake of the batch that was in the barn; its event says that the edge found it."""
    return replace(intake, event=postings.with_batch(intake.event, batch_id), batch_id=batch_id)


def _row_id(parent: BusEvent, number: int) -> UUID:
    """With the tenant: two tenants may use one id for two imports."""
    return ids.derived(
        parent.occurred_at,
        parent.tenant_id,
        str(parent.event_id),
        str(number),
        feed.INTAKE_RECORDED,
    )


def _without_source(row: msgspec.Raw) -> bytes:
    """Remove a source that the row has no right to name: a key must not be there twice."""
    fields = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
    if fields.pop("source", None) is None:
        return bytes(row)
    return msgspec.json.encode(fields)


class _Rows(msgspec.Struct):
    rows: list[msgspec.Raw]


# --- lots


class LotReceived(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /api/v1/feed/lots. `occurred_at` is now if it is absent."""

    tenant_id: Id
    farm_id: Id
    barn_id: Id
    feed_lot_id: Id
    quantity_kg: QuantityKg
    occurred_at: Instant | msgspec.UnsetType = msgspec.UNSET
    device_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    event_id: UUID | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        require_utc(self.occurred_at)


def lot_event(
    lot: LotReceived, raw: bytes, *, event_id: UUID, trace_id: str, now: datetime
) -> BusEvent:
    """Under the client's id if it gave one, else `event_id`. The number stays as written."""
    quantity = msgspec.json.decode(raw, type=_Quantity).quantity_kg
    payload = {"feed_lot_id": lot.feed_lot_id, "quantity_kg": quantity}
    return BusEvent(
        event_id=event_id if lot.event_id is msgspec.UNSET else lot.event_id,
        event_type=feed.LOT_RECEIVED,
        tenant_id=lot.tenant_id,
        farm_id=lot.farm_id,
        barn_id=lot.barn_id,
        device_id=lot.device_id or msgspec.UNSET,
        occurred_at=now if lot.occurred_at is msgspec.UNSET else lot.occurred_at,
        trace_id=trace_id,
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )


def lot_hash(lot: LotReceived) -> bytes:
    """Of the request: a time that was left to us is not part of it."""
    moment = lot.occurred_at
    at = None if moment is msgspec.UNSET else moment.astimezone(UTC).isoformat()
    place = (lot.farm_id, lot.barn_id, lot.device_id or None)
    given = None if lot.event_id is msgspec.UNSET else str(lot.event_id)
    parts = (*place, lot.feed_lot_id, lot.quantity_kg, at, given)
    return hashlib.sha256(msgspec.json.encode(parts)).digest()


class _Quantity(msgspec.Struct):
    quantity_kg: msgspec.Raw
