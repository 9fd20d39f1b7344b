"""Images from the edges: an edge requests an address, and requests it again to confirm.

edge-media-store --presign--> [intake] --address--> edge --PUT--> the cloud's bucket
edge-media-store --presign again--> [intake] --HEAD, bytes, sha256--> stored_at --> "stored": true

An image counts as stored only after it was read back and is what the edge declared (C-22).
"""

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import prometheus_client
from fastapi import Depends, Request, Response

from farmiq import api, crash
from farmiq.api import JsonBody, route
from farmiq.cloud.edges import keyring
from farmiq.cloud.edges.keyring import Keyring
from farmiq.cloud.media import store
from farmiq.config import CloudSettings
from farmiq.messages import media
from farmiq.messages.media import ImageToUpload, UploadAddress
from farmiq.plumbing import db, http, log
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.images import gallery
from farmiq.plumbing.storage import objects

MAX_BYTES = 16 * 1024
# Each reader holds a whole image.
MAX_READERS = 8
BODY = api.BodyOf(ImageToUpload, max_bytes=MAX_BYTES, root="$")

REQUESTS = prometheus_client.Counter(
    "farmiq_media_intake_total", "Requests of edges for an image's address", ["outcome"]
)


class Intake(api.Routes):
    def __init__(
        self,
        settings: CloudSettings,
        pool: db.Pool,
        keys: Keyring,
        bucket: objects.Bucket | None,
    ) -> None:
        self._settings, self._pool, self._keyring = settings, pool, keys
        self._bucket = bucket
        self._readers = asyncio.Semaphore(MAX_READERS)

    @route(
        "POST",
        media.PRESIGN,
        route_class_override=http.RawRoute,
        operation_id="presignImage",
        dependencies=[
            keyring.EDGE_TOKEN,
            Depends(BODY),
            Depends(api.ResponseOf(UploadAddress, description="Where to put it.")),
        ],
        responses={
            403: "FORBIDDEN: the token does not speak for this tenant.",
            409: "CONFLICT: this mediaId was used for an image of another content.",
            413: f"PAYLOAD_TOO_LARGE: the image is, or the request has more than {MAX_BYTES} "
            "bytes.",
            503: "UNAVAILABLE: the database or the object store is away, or there is none.",
        },
    )
    async def presign(self, request: Request) -> Response:
        """Where an edge may put an image.

        mediaId, sha256 and contentLength are needed here. `stored` says that the bytes are in the
        cloud, read back and equal to that sha256.
        """
        edge = await self._keyring.identify(request)
        image = _require_identity(await JsonBody(request, BODY).read())
        if image.tenant_id not in edge.tenants:
            raise HttpError(403, f"this token does not speak for tenant {image.tenant_id!r}")
        if self._bucket is None:
            raise gallery.no_store("cloud")
        try:
            address = await self._address(self._bucket, image)
        except (*db.UNAVAILABLE, *objects.UNAVAILABLE) as error:
            log.get("cloud-media-store").warning("media.away", error=db.first_line(error))
            raise HttpError(
                503, "the database or the object store is away; try again", retry_after_s=5
            ) from error
        REQUESTS.labels(outcome="stored" if address.stored else "address").inc()
        return Response(msgspec.json.encode(address), media_type=http.JSON, headers=api.NO_STORE)

    async def _address(self, bucket: objects.Bucket, image: ImageToUpload) -> UploadAddress:
        media_id, size_bytes, sha256 = _identity(image)
        key = media.object_key(
            image,
            media_id=media_id,
            captured_at=image.captured_at,
            content_type=image.content_type,
        )
        async with db.transaction(self._pool) as tx:
            if not await store.is_company(tx, image.tenant_id):
                raise HttpError(403, f"tenant {image.tenant_id!r} is not registered here")
            known = await store.request(tx, image, object_key=key)
            if details := _differences(known, image):
                raise HttpError(409, "this image is known with another content", details=details)
        key = known.object_key or key
        is_stored = known.stored_at is not None or await self._confirm(bucket, image, key)
        lifetime_s = self._settings.media_presign_s
        url, headers = bucket.upload(
            key,
            lifetime_s=lifetime_s,
            content_type=image.content_type,
            size_bytes=size_bytes,
            sha256=sha256,
        )
        stored: dict[str, Any] = (
            {"stored": True, "size_bytes": size_bytes, "sha256": sha256} if is_stored else {}
        )
        return UploadAddress(
            upload_url=url,
            media_id=media_id,
            expires_at=datetime.now(UTC) + timedelta(seconds=lifetime_s),
            required_headers=headers,
            **stored,
        )

    async def _confirm(self, bucket: objects.Bucket, image: ImageToUpload, key: str) -> bool:
        """Whether the declared bytes are under the key; other bytes are moved to `aside/`."""
        media_id, size_bytes, sha256 = _identity(image)
        head = await bucket.head(key)
        if head is None:
            return False
        async with self._readers:
            data = await bucket.find(key) if head.size_bytes == size_bytes else b""
        if data is None or hashlib.sha256(data).hexdigest() != sha256:
            await bucket.copy(key, f"aside/{key}/{head.etag}")
            await bucket.delete(key)
            log.get("cloud-media-store").error("media.wrong_bytes", media_id=str(media_id))
            return False
        async with db.transaction(self._pool) as tx:
            await store.confirm(tx, image.tenant_id, media_id, etag=head.etag)
            crash.here("media.before_confirm_commit")
        crash.here("media.after_confirm_commit")
        return True


def _require_identity(image: ImageToUpload) -> ImageToUpload:
    """An edge must also send the fields that a device may leave out. Raises HttpError 400."""
    required = {
        "mediaId": image.media_id,
        "sha256": image.sha256,
        "contentLength": image.content_length,
    }
    absent = [f"$.{name}" for name, value in required.items() if not value]
    if absent:
        raise api.invalid(*((field, "an edge has to say it") for field in absent))
    return image


def _identity(image: ImageToUpload) -> tuple[UUID, int, str]:
    assert image.media_id  # noqa: S101 - `_require_identity` did
    assert image.content_length  # noqa: S101
    assert image.sha256  # noqa: S101
    return image.media_id, image.content_length, image.sha256.lower()


def _differences(known: store.Known, image: ImageToUpload) -> list[dict[str, str]]:
    _, size_bytes, sha256 = _identity(image)
    pairs: tuple[tuple[str, object, object], ...] = (
        ("sha256", known.sha256, sha256),
        ("contentLength", known.size_bytes, size_bytes),
        ("contentType", known.mime_type, image.content_type),
    )
    return [
        {"field": field, "reason": f"is {now} now and was {before}"}
        for field, before, now in pairs
        if before is not None and before != now
    ]
