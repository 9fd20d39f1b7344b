"""The MQTT envelope: what every message on an `iot/` topic wears."""

from uuid import UUID

import msgspec

from farmiq.messages import check
from farmiq.messages.ids import Id, Instant, TraceId

SCHEMA_VERSION = "1.0"


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields we do not know are ignored: a newer device must not be refused for saying more."""

    schema_version: str
    event_id: UUID
    trace_id: TraceId
    tenant_id: Id
    device_id: Id
    event_type: Id
    ts: Instant
    payload: msgspec.Raw
    # Fixed by our agent when it captures, so that a replay is byte-equal (C-84).
    seq: int | msgspec.UnsetType = msgspec.UNSET
    boot_id: str | msgspec.UnsetType = msgspec.UNSET
    content_hash: str | msgspec.UnsetType = msgspec.UNSET


_decoder = msgspec.json.Decoder(Envelope)


def read(raw: bytes) -> Envelope:
    """The envelope in these bytes. Raises check.Invalid with every problem found."""
    envelope = check.read(raw, _decoder, Envelope)
    reasons = check.not_in_utc(envelope.ts, "ts")
    major = envelope.schema_version.partition(".")[0]
    if major != SCHEMA_VERSION.partition(".")[0]:
        known = f"schema_version {envelope.schema_version!r} is not understood, expected 1.x"
        reasons.append(known)
    if reasons:
        raise check.Invalid(reasons)
    return envelope
