"""Feed: what was dispensed or imported at a barn, and lots that were delivered.

`replaces` names the event that this one corrects; the other then counts for nothing. `batch_id`
names the animals that were fed; without it they are those that were in the barn on that day.
"""

from typing import Annotated, Literal
from uuid import UUID

import msgspec

from farmiq.messages.ids import Id
from farmiq.messages.kinds import Name, QuantityKg

DISPENSED = "feed.dispensed"  # on MQTT; both become an intake on the bus
IMPORTED = "feed.imported"
INTAKE_RECORDED = "feed.intake.recorded"
LOT_RECEIVED = "feed.lot.received"

Source = Literal["SILO_AUTO", "MANUAL", "IMPORT"]


class FeedDispensed(msgspec.Struct, frozen=True, kw_only=True):
    """Without a source it was the silo (C-96)."""

    quantity_kg: QuantityKg
    feed_lot_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    source: Source | msgspec.UnsetType = msgspec.UNSET
    batch_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    replaces: UUID | msgspec.UnsetType | None = msgspec.UNSET


class FeedImportedRow(msgspec.Struct, frozen=True, kw_only=True):
    """`ref` is where the row stands in what was imported."""

    feed_lot_id: Id
    quantity_kg: QuantityKg
    ref: Name
    batch_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    replaces: UUID | msgspec.UnsetType | None = msgspec.UNSET


class FeedImported(msgspec.Struct, frozen=True, kw_only=True):
    rows: Annotated[tuple[FeedImportedRow, ...], msgspec.Meta(min_length=1)]


class FeedIntakeRecorded(msgspec.Struct, frozen=True, kw_only=True):
    source: Source
    quantity_kg: QuantityKg
    feed_lot_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    batch_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    replaces: UUID | msgspec.UnsetType | None = msgspec.UNSET


class FeedLotReceived(msgspec.Struct, frozen=True, kw_only=True):
    feed_lot_id: Id
    quantity_kg: QuantityKg
    feed_product_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    replaces: UUID | msgspec.UnsetType | None = msgspec.UNSET
