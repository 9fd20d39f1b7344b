"""Media: an image is in the store; where it lies there; how a sender asks where to put it."""

from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec

from farmiq.messages.ids import Id, Instant, TraceId
from farmiq.messages.kinds import Count, Name, Sha256, require_utc
from farmiq.messages.topics import HasPlace

STORED = "media.stored"

ImageType = Literal["image/jpeg", "image/png", "image/webp"]
EXTENSIONS: dict[ImageType, str] = {
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/webp": "webp",
}
MAX_BYTES = 10 * 2**20
PRESIGN = "/api/v1/media/images/presign"

# As long as a key of S3 may be; five ids of the longest kind fit.
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Length = Annotated[int, msgspec.Meta(ge=1, le=MAX_BYTES)]


class MediaStored(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is the object's key; `bucket` and `object_key` say the same in the store's words."""

    media_id: UUID
    path: Key
    mime_type: ImageType
    size_bytes: Count
    bucket: Name | msgspec.UnsetType | None = msgspec.UNSET
    object_key: Key | msgspec.UnsetType | None = msgspec.UNSET
    sha256: Sha256 | msgspec.UnsetType | None = msgspec.UNSET
    captured_at: Instant | msgspec.UnsetType | None = msgspec.UNSET

    def __post_init__(self) -> None:
        require_utc(self.captured_at)


class ImageToUpload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where may this image be put? With `mediaId` it is one that was asked for before."""

    tenant_id: Id
    farm_id: Id
    barn_id: Id
    device_id: Id
    trace_id: TraceId
    captured_at: Instant
    content_type: ImageType
    station_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    session_id: UUID | msgspec.UnsetType | None = msgspec.UNSET
    content_length: Length | msgspec.UnsetType | None = msgspec.UNSET
    media_id: UUID | msgspec.UnsetType | None = msgspec.UNSET
    sha256: Sha256 | msgspec.UnsetType | None = msgspec.UNSET

    def __post_init__(self) -> None:
        require_utc(self.captured_at)


class UploadAddress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """PUT the bytes to `upload_url` with these headers, before `expires_at`.

    `stored`: they are whole in the store already, with this size and hash; a PUT is refused.
    """

    upload_url: str
    media_id: UUID
    expires_at: datetime
    required_headers: dict[str, str]
    stored: bool = False
    size_bytes: int | msgspec.UnsetType = msgspec.UNSET
    sha256: str | msgspec.UnsetType = msgspec.UNSET


def object_key(
    place: HasPlace,
    *,
    media_id: UUID,
    captured_at: datetime,
    content_type: ImageType,
) -> str:
    """The same at the edge and in the cloud; the day is the day of the capture in UTC."""
    day = captured_at.astimezone(UTC)
    farm = f"tenants/{place.tenant_id}/farms/{place.farm_id}"
    device = f"barns/{place.barn_id}/devices/{place.device_id}"
    date = f"{day.year:04}/{day.month:02}/{day.day:02}"
    return f"{farm}/{device}/images/{date}/{media_id}.{EXTENSIONS[content_type]}"
