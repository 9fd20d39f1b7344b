"""The MQTT envelope: what every message on an `iot/` topic wears."""

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.messages import check
from farmiq.messages.ids import Id, Instant, TraceId
from farmiq.messages.kinds import Seq
from farmiq.messages.topics import Place

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
    seq: Seq | msgspec.UnsetType = msgspec.UNSET
    boot_id: str | msgspec.UnsetType = msgspec.UNSET
    content_hash: str | msgspec.UnsetType = msgspec.UNSET


_decoder = msgspec.json.Decoder(Envelope)


def read(raw: bytes) -> Envelope:
    """The envelope in these bytes. Raises check.InvalidError with every problem found."""
    try:
        return strict(raw)
    except check.DECODE_ERRORS as error:
        body, unkeepable = check.look(raw)
        raise check.InvalidError([*unkeepable, *problems(body)] or [str(error)]) from None


def write(
    place: Place,
    payload: bytes,
    *,
    event_type: str,
    event_id: UUID,
    at: datetime,
    trace_id: str | None = None,
    **more: Any,
) -> bytes:
    """The bytes of a message of, or to, the device at this place; its own trace if none is given.

    `payload` is JSON; `more` is what our agent adds: seq, boot_id, content_hash.
    """
    return msgspec.json.encode(
        Envelope(
            schema_version=SCHEMA_VERSION,
            event_id=event_id,
            trace_id=trace_id or str(event_id),
            tenant_id=place.tenant_id,
            device_id=place.device_id,
            event_type=event_type,
            ts=at.astimezone(UTC),
            payload=msgspec.Raw(payload),
            **more,
        )
    )


def strict(raw: bytes) -> Envelope:
    """The fast path of `read`: raises one of check.DECODE_ERRORS with the first problem."""
    envelope = _decoder.decode(raw)
    reasons = [
        *check.keepable(raw),
        *check.not_in_utc(envelope.ts, "ts"),
        *_unknown_version(envelope.schema_version),
    ]
    if reasons:
        raise check.InvalidError(reasons)
    return envelope


def problems(body: Any) -> list[str]:
    """Everything that keeps a looked-at body from being an envelope, its payload aside."""
    version = body.get("schema_version") if isinstance(body, dict) else None
    unknown = _unknown_version(version) if isinstance(version, str) else []
    return [*check.misfits(body, Envelope, "$"), *unknown]


def _unknown_version(version: str) -> list[str]:
    if version == SCHEMA_VERSION or _UNDERSTOOD.fullmatch(version):
        return []
    return [f"schema_version {version!r} is not understood, expected 1 or 1.<digits>"]


# A newer minor version only says more, which is ignored.
_UNDERSTOOD = re.compile(r"1(\.[0-9]{1,9})?")
