"""Pure: whether a device may put this image, and whether it is the one it asked about before."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.messages import check, media
from farmiq.messages.media import ImageToUpload, ImageType
from farmiq.messages.topics import Place

UUID_VERSION = 7
_decoder = msgspec.json.Decoder(ImageToUpload)


@dataclass(frozen=True, slots=True)
class Asked:
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
            tenant_id=self.tenant_id,
            farm_id=self.farm_id,
            barn_id=self.barn_id,
            device_id=self.device_id,
            media_id=media_id,
            captured_at=self.captured_at,
            content_type=self.content_type,
        )


@dataclass(frozen=True, slots=True)
class Declared:
    """What was said of an image when its address was first asked for."""

    content_type: str | None
    size_bytes: int | None
    sha256: str | None
    captured_at: datetime
    session_id: UUID | None


class TooLarge(Exception):  # noqa: N818 - an answer
    """The image is larger than is taken."""


def read(raw: bytes, *, most_bytes: int) -> Asked:
    """Raises check.Invalid with every problem, or TooLarge."""
    _refuse_large(raw, most_bytes)
    said = check.read(raw, _decoder, ImageToUpload)
    reasons = check.keepable(raw)
    if said.media_id and said.media_id.version != UUID_VERSION:
        reasons.append("not a UUIDv7, as all ids of images are - at `$.mediaId`")
    if reasons:
        raise check.Invalid(reasons)
    return Asked(
        tenant_id=said.tenant_id,
        farm_id=said.farm_id,
        barn_id=said.barn_id,
        device_id=said.device_id,
        station_id=said.station_id or None,
        session_id=said.session_id or None,
        trace_id=said.trace_id,
        captured_at=said.captured_at.astimezone(UTC),
        content_type=said.content_type,
        size_bytes=said.content_length or None,
        sha256=said.sha256.lower() if said.sha256 else None,
        media_id=said.media_id or None,
    )


def foreign(asked: Asked, place: Place, station_id: str | None) -> list[tuple[str, str]]:
    """(field, reason) of everything that is not the caller's own; a station may be left out."""
    pairs = (
        ("tenantId", asked.tenant_id, place.tenant_id),
        ("farmId", asked.farm_id, place.farm_id),
        ("barnId", asked.barn_id, place.barn_id),
        ("deviceId", asked.device_id, place.device_id),
        ("stationId", asked.station_id or station_id, station_id),
    )
    return [
        (field, f"{said!r} is not the {field} of the device that this token belongs to")
        for field, said, own in pairs
        if said != own
    ]


def differences(asked: Asked, known: Declared) -> list[tuple[str, str]]:
    """What is said now and contradicts what was said before; saying more is none."""
    return list(_differences(asked, known))


def _differences(asked: Asked, known: Declared) -> Iterator[tuple[str, str]]:
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("contentType", asked.content_type, known.content_type),
        ("contentLength", asked.size_bytes, known.size_bytes),
        ("sha256", asked.sha256, known.sha256),
        ("sessionId", asked.session_id, known.session_id),
        ("capturedAt", asked.captured_at, known.captured_at),
    )
    for field, now, before in pairs:
        if now is not None and before is not None and now != before:
            yield field, f"is {now} now and was {before} when this image was first asked about"


def _refuse_large(raw: bytes, most_bytes: int) -> None:
    """Too much has an answer of its own, 413, whatever else is wrong."""
    try:
        length = msgspec.json.decode(raw, type=_Length).contentLength
    except check.REFUSED:
        return
    if isinstance(length, int) and not isinstance(length, bool) and length > most_bytes:
        raise TooLarge(f"an image has at most {most_bytes} bytes, this one {length}")


class _Length(msgspec.Struct):
    contentLength: Any = None  # noqa: N815 - the contract's spelling
