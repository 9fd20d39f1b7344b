"""Receipts: the edge's answer to a device: which events are committed or rejected (C-91)."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from farmiq.messages import check, envelope
from farmiq.messages.topics import Place

RECEIPT = "device.receipt"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    event_id: UUID
    reason: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Either list ends retransmission; duplicates stand in event_ids."""

    event_ids: tuple[UUID, ...]
    rejected: tuple[Refusal, ...]


_decoder = msgspec.json.Decoder(Receipt)


def write(
    place: Place,
    *,
    stored: tuple[UUID, ...],
    refused: Mapping[UUID, str],
    event_id: UUID,
    now: datetime,
) -> bytes:
    rejected = tuple(Refusal(event_id=key, reason=why) for key, why in refused.items())
    body = msgspec.json.encode(Receipt(event_ids=stored, rejected=rejected))
    return envelope.write(place, body, event_type=RECEIPT, event_id=event_id, at=now)


def read(payload: msgspec.Raw) -> Receipt:
    return check.read(payload, _decoder, Receipt)
