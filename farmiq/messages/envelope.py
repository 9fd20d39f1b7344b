"""The MQTT envelope: what every message on an `iot/` topic wears."""

from uuid import UUID

import msgspec

from farmiq.messages import check
from farmiq.messages.ids import Id, Instant, TraceId
from farmiq.messages.kinds import Seq

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
    """The envelope in these bytes. Raises check.Invalid with every problem found."""
    try:
        envelope = check.read(raw, _decoder, Envelope)
    except check.Invalid as invalid:
        raise check.Invalid([*invalid.reasons, *_version_problems(raw)]) from None
    reasons = [
        *check.keepable(raw),
        *check.not_in_utc(envelope.ts, "ts"),
        *_unknown_version(envelope.schema_version),
    ]
    if reasons:
        raise check.Invalid(reasons)
    return envelope


def _unknown_version(version: str) -> list[str]:
    if version.partition(".")[0] == SCHEMA_VERSION.partition(".")[0]:
        return []
    return [f"schema_version {version!r} is not understood, expected 1.x"]


class _JustTheVersion(msgspec.Struct):
    schema_version: str


_just_the_version = msgspec.json.Decoder(_JustTheVersion)


def _version_problems(raw: bytes) -> list[str]:
    """Of a body that is wrong otherwise, its version too: that may be why it is."""
    try:
        return _unknown_version(_just_the_version.decode(raw).schema_version)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return []
