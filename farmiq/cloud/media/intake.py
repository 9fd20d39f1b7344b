"""Images from the edges: an edge asks where to put one, and by asking again hears that it is here.

edge-media-store --presign--> [intake] --address--> edge --PUT--> the cloud's bucket
edge-media-store --presign again--> [intake] --HEAD, bytes, sha256--> stored_at --> "stored": true

Nothing counts as here that was not read back and found equal to what the edge said (C-22).
"""

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import prometheus_client
from fastapi import Depends, FastAPI, Request, Response

from farmiq import api, crash
from farmiq.cloud.edges import keyring
from farmiq.cloud.edges.keyring import Keyring
from farmiq.cloud.media import store
from farmiq.config import CloudSettings
from farmiq.messages import check, media
from farmiq.messages.media import ImageToUpload, UploadAddress
from farmiq.plumbing import db, http, log, objects
from farmiq.plumbing.http import HttpError

MOST_BYTES = 16 * 1024
# Each holds a whole image.
MOST_READING = 8
NO_STORE = {"Cache-Control": "no-store"}
_decoder = msgspec.json.Decoder(ImageToUpload)

ASKED = prometheus_client.Counter(
    "farmiq_media_intake_total", "Requests of edges for an image's address", ["outcome"]
)


class Intake:
    def __init__(
        self,
        settings: CloudSettings,
        pool: db.Pool,
        keys: Keyring,
        bucket: objects.Bucket | None,
    ) -> None:
        self._settings, self._pool, self._keyring = settings, pool, keys
        self._bucket = bucket
        self._reading = asyncio.Semaphore(MOST_READING)

    def add_to(self, app: FastAPI) -> None:
        app.router.add_api_route(
            media.PRESIGN,
            self.presign,
            methods=["POST"],
            route_class_override=http.RawRoute,
            summary="Where an edge may put an image",
            operation_id="presignImage",
            description="mediaId, sha256 and contentLength are needed here. `stored` says that the "
            "bytes are in the cloud, read back and equal to that sha256.",
            dependencies=[
                keyring.EDGE_TOKEN,
                Depends(api.BodyOf(ImageToUpload, max_bytes=MOST_BYTES)),
                Depends(api.ResponseOf(UploadAddress, description="Where to put it.")),
            ],
            responses=api.errors(
                {
                    403: "FORBIDDEN: the token does not speak for this tenant.",
                    409: "CONFLICT: this mediaId was used for an image of another content.",
                    413: "PAYLOAD_TOO_LARGE: the image is, or the request has more than "
                    f"{MOST_BYTES} bytes.",
                    503: "UNAVAILABLE: the database or the object store is away, or there is none.",
                }
            ),
        )

    async def presign(self, request: Request) -> Response:
        edge = await self._keyring.identify(request)
        said = _read(await http.body(request, what="a request", most=MOST_BYTES))
        if said.tenant_id not in edge.tenants:
            raise HttpError(403, f"this token does not speak for tenant {said.tenant_id!r}")
        if self._bucket is None:
            raise HttpError(
                503, "this cloud has no object store (FARMIQ_CLOUD_S3_URL)", retry_after_s=60
            )
        try:
            address = await self._address(self._bucket, said)
        except (*db.UNAVAILABLE, *objects.UNAVAILABLE) as error:
            log.get("cloud-media-store").warning("media.away", error=db.first_line(error))
            raise HttpError(
                503, "the database or the object store is away; try again", retry_after_s=5
            ) from error
        ASKED.labels(outcome="stored" if address.stored else "address").inc()
        return Response(
            msgspec.json.encode(address), media_type="application/json", headers=NO_STORE
        )

    async def _address(self, bucket: objects.Bucket, said: ImageToUpload) -> UploadAddress:
        media_id, size_bytes, sha256 = _identified(said)
        key = _key(said, media_id)
        async with db.transaction(self._pool) as tx:
            if not await store.is_company(tx, said.tenant_id):
                raise HttpError(403, f"tenant {said.tenant_id!r} is not registered here")
            known = await store.ask(tx, said, object_key=key)
            if wrong := _differences(known, said, size_bytes, sha256):
                raise HttpError(409, "this image is known with another content", details=wrong)
        key = known.object_key or key
        here = known.stored_at is not None
        if not here:
            here = await self._look(bucket, said.tenant_id, media_id, key, size_bytes, sha256)
        url, headers = bucket.upload(
            key,
            lifetime_s=self._settings.media_presign_s,
            content_type=said.content_type,
            size_bytes=size_bytes,
            sha256=sha256,
        )
        whole: dict[str, Any] = (
            {"stored": True, "size_bytes": size_bytes, "sha256": sha256} if here else {}
        )
        expires_at = datetime.now(UTC) + timedelta(seconds=self._settings.media_presign_s)
        return UploadAddress(
            upload_url=url,
            media_id=media_id,
            expires_at=expires_at,
            required_headers=headers,
            **whole,
        )

    async def _look(  # noqa: PLR0917 - one image, from all sides
        self,
        bucket: objects.Bucket,
        tenant_id: str,
        media_id: UUID,
        key: str,
        size_bytes: int,
        sha256: str,
    ) -> bool:
        """Whether the bytes are here, whole; other bytes in their place are moved aside."""
        head = await bucket.head(key)
        if head is None:
            return False
        async with self._reading:
            data = await bucket.find(key) if head.size_bytes == size_bytes else b""
        if data is None or hashlib.sha256(data).hexdigest() != sha256:
            await bucket.copy(key, f"aside/{key}/{head.etag}")
            await bucket.delete(key)
            log.get("cloud-media-store").error("media.wrong_bytes", media_id=str(media_id))
            return False
        async with db.transaction(self._pool) as tx:
            await store.confirm(tx, tenant_id, media_id, etag=head.etag)
            crash.here("media.before_confirm_commit")
        crash.here("media.after_confirm_commit")
        return True


def _read(raw: bytes) -> ImageToUpload:
    """An edge knows all of an image: what a device may leave out, it has to say."""
    try:
        said = check.read(raw, _decoder, ImageToUpload)
        if reasons := check.keepable(raw):
            raise check.Invalid(reasons)  # noqa: TRY301 - one place answers
    except check.Invalid as invalid:
        raise _invalid([_detail(reason) for reason in invalid.reasons]) from None
    missing = [
        {"field": f"$.{name}", "reason": "an edge has to say it"}
        for name, value in (
            ("mediaId", said.media_id),
            ("sha256", said.sha256),
            ("contentLength", said.content_length),
        )
        if not value
    ]
    if missing:
        raise _invalid(missing)
    return said


def _identified(said: ImageToUpload) -> tuple[UUID, int, str]:
    assert said.media_id  # noqa: S101 - _read asked for them
    assert said.content_length  # noqa: S101
    assert said.sha256  # noqa: S101
    return said.media_id, said.content_length, said.sha256.lower()


def _key(said: ImageToUpload, media_id: UUID) -> str:
    return media.object_key(
        tenant_id=said.tenant_id,
        farm_id=said.farm_id,
        barn_id=said.barn_id,
        device_id=said.device_id,
        media_id=media_id,
        captured_at=said.captured_at,
        content_type=said.content_type,
    )


def _differences(
    known: store.Known, said: ImageToUpload, size_bytes: int, sha256: str
) -> list[dict[str, str]]:
    pairs: tuple[tuple[str, object, object], ...] = (
        ("sha256", known.sha256, sha256),
        ("contentLength", known.size_bytes, size_bytes),
        ("contentType", known.mime_type, said.content_type),
    )
    return [
        {"field": field, "reason": f"is {now} now and was {before}"}
        for field, before, now in pairs
        if before is not None and before != now
    ]


def _detail(reason: str) -> dict[str, str]:
    said, _, where = reason.partition(" - at `")
    return {"field": where.removesuffix("`") or "$", "reason": said}


def _invalid(details: list[dict[str, str]]) -> HttpError:
    return HttpError(400, "the request is not valid", details=details)
