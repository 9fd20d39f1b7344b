"""Pure: a lot as a client sends it, and the event for the cloud that is made of it (C-95)."""

import hashlib
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from farmiq.messages import feed
from farmiq.messages.bus import BusEvent
from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import QuantityKg, require_utc


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


def event(
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


def content_hash(lot: LotReceived) -> bytes:
    """Of the request: a time that was left to us is not part of it."""
    moment = lot.occurred_at
    at = None if moment is msgspec.UNSET else moment.astimezone(UTC).isoformat()
    place = (lot.farm_id, lot.barn_id, lot.device_id or None)
    given = None if lot.event_id is msgspec.UNSET else str(lot.event_id)
    parts = (*place, lot.feed_lot_id, lot.quantity_kg, at, given)
    return hashlib.sha256(msgspec.json.encode(parts)).digest()


class _Quantity(msgspec.Struct):
    quantity_kg: msgspec.Raw
