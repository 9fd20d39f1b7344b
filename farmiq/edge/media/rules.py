"""Pure: may a device upload an image, are its bytes the declared ones, may it be deleted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from farmiq.messages import check, media
from farmiq.messages.media import ImageToUpload, ImageType
from farmiq.messages.topics import Place

UUID_VERSION = 7
# A station may have been offline for weeks; an older capture time is a wrong clock (C-44).
MAX_OFFLINE = timedelta(days=30)
MAX_AHEAD = timedelta(days=1)
# The bucket's own rule deletes what we never came to delete; we come first.
BUCKET_RULE_DAYS = 30
_decoder = msgspec.json.Decoder(ImageToUpload)


# --- requests for an address


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """A request without the difference between absent and null."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str | None
    session_id: UUID | None
    trace_id: str
    captured_at: datetime
    content_type: ImageType
    size_bytes: int | None
    sha256: str | None
    media_id: UUID | None

    def object_key(self, media_id: UUID) -> str:
        return media.object_key(
            self,
            media_id=media_id,
            captured_at=self.captured_at,
            content_type=self.content_type,
        )


@dataclass(frozen=True, slots=True)
class Declared:
    """What the first request for an image's address declared."""

    content_type: str | None
    size_bytes: int | None
    sha256: str | None
    captured_at: datetime
    session_id: UUID | None


class TooLargeError(Exception):
    """The image is larger than the store accepts."""


class _Length(msgspec.Struct):
    contentLength: Any = None  # noqa: N815 - the contract's spelling


def read(raw: bytes, *, max_bytes: int) -> UploadRequest:
    """Raises check.InvalidError with every problem, or TooLargeError (status 413)."""
    try:
        length = msgspec.json.decode(raw, type=_Length).contentLength
    except check.DECODE_ERRORS:
        length = None
    if type(length) is int and length > max_bytes:
        raise TooLargeError(f"an image has at most {max_bytes} bytes, this one {length}")
    body = check.read(raw, _decoder, ImageToUpload)
    reasons = check.keepable(raw)
    if body.media_id and body.media_id.version != UUID_VERSION:
        reasons.append("not a UUIDv7, as all ids of images are - at `$.mediaId`")
    if reasons:
        raise check.InvalidError(reasons)
    return UploadRequest(
        tenant_id=body.tenant_id,
        farm_id=body.farm_id,
        barn_id=body.barn_id,
        device_id=body.device_id,
        station_id=body.station_id or None,
        session_id=body.session_id or None,
        trace_id=body.trace_id,
        captured_at=body.captured_at.astimezone(UTC),
        content_type=body.content_type,
        size_bytes=body.content_length or None,
        sha256=body.sha256.lower() if body.sha256 else None,
        media_id=body.media_id or None,
    )


def not_its_own(
    request: UploadRequest, place: Place, station_id: str | None
) -> list[tuple[str, str]]:
    """(field, reason) of everything that is not the caller's own; a station may be left out."""
    pairs = (
        ("tenantId", request.tenant_id, place.tenant_id),
        ("farmId", request.farm_id, place.farm_id),
        ("barnId", request.barn_id, place.barn_id),
        ("deviceId", request.device_id, place.device_id),
        ("stationId", request.station_id or station_id, station_id),
    )
    return [
        (field, f"{value!r} is not the {field} of the device that this token belongs to")
        for field, value, own in pairs
        if value != own
    ]


def differences(request: UploadRequest, known: Declared) -> list[tuple[str, str]]:
    """Fields that contradict the first request; a field that was absent may be added."""
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("contentType", request.content_type, known.content_type),
        ("contentLength", request.size_bytes, known.size_bytes),
        ("sha256", request.sha256, known.sha256),
        ("sessionId", request.session_id, known.session_id),
        ("capturedAt", request.captured_at, known.captured_at),
    )
    return [
        (field, f"is {now} now and was {before} when this image was first asked about")
        for field, now, before in pairs
        if now is not None and before is not None and now != before
    ]


# --- the bytes in the store


@dataclass(frozen=True, slots=True)
class StoredObject:
    """`mime_type` is by its first bytes; `broken` is why it is not an image."""

    size_bytes: int
    etag: str
    sha256: str | None = None
    mime_type: str | None = None
    broken: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request or an announcement (`source`) says of an image."""

    source: str
    mime_type: str | None
    size_bytes: int | None
    sha256: str | None


def problems(content: StoredObject, claims: Iterable[Claim], *, max_bytes: int) -> list[str]:
    """Why the bytes cannot be the image that was meant; empty if they can."""
    if content.size_bytes == 0:
        return ["it is empty"]
    if content.size_bytes > max_bytes:
        return [f"it has {content.size_bytes} bytes, at most {max_bytes} are taken"]
    broken = [f"it is no image: {content.broken}"] if content.broken else []
    return broken + [reason for claim in claims for reason in _contradictions(content, claim)]


def _contradictions(content: StoredObject, claim: Claim) -> Iterator[str]:
    if content.mime_type and claim.mime_type not in (None, content.mime_type):
        yield f"{claim.source} says {claim.mime_type}, its first bytes say {content.mime_type}"
    if claim.size_bytes not in (None, content.size_bytes):
        yield f"{claim.source} says {claim.size_bytes} bytes, it has {content.size_bytes}"
    if claim.sha256 not in (None, content.sha256):
        yield f"{claim.source} says sha256 {claim.sha256}, it has {content.sha256}"


def next_check_s(count: int) -> float:
    """How long until an announced image is checked again: soon, then hourly."""
    return min(2.0 ** min(count, 12), 3600.0)


# --- retention (C-23, RT-08, RT-09)


@dataclass(frozen=True, slots=True)
class Aged:
    """An image that may have expired. `session_open`: its session was never finalized."""

    id: UUID
    object_key: str
    aside_key: str | None
    captured_at: datetime
    created_at: datetime
    stored: bool
    synced: bool
    session_open: bool


def age_from(captured_at: datetime, created_at: datetime) -> datetime:
    """The capture time if the device's clock is plausible, else when we heard of the image."""
    plausible = created_at - MAX_OFFLINE <= captured_at <= created_at + MAX_AHEAD
    return captured_at if plausible else created_at


def is_expired(image: Aged, *, now: datetime, days: float, open_sessions: bool) -> bool:
    """Never what the cloud does not have; of open sessions only if `open_sessions` is set."""
    if now - age_from(image.captured_at, image.created_at) <= timedelta(days=days):
        return False
    if image.stored and not image.synced:
        return False
    return open_sessions or not image.session_open
