"""Media: an image is in the store."""

from typing import Literal
from uuid import UUID

import msgspec

from farmiq.messages.kinds import Count, Name, Sha256

STORED = "media.stored"

ImageType = Literal["image/jpeg", "image/png", "image/webp"]


class MediaStored(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is the object's key; `bucket` and `object_key` say the same in the store's words."""

    media_id: UUID
    path: Name
    mime_type: ImageType
    size_bytes: Count
    bucket: Name | msgspec.UnsetType | None = msgspec.UNSET
    object_key: Name | msgspec.UnsetType | None = msgspec.UNSET
    sha256: Sha256 | msgspec.UnsetType | None = msgspec.UNSET
