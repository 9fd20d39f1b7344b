"""The routes of images: a device asks where to put one; people list them and look at them."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

import msgspec
from fastapi import Depends, Header, Query, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.api import At, BodyOf, Id, ResponseOf, route
from farmiq.config import EdgeSettings
from farmiq.edge import access
from farmiq.edge.access import DeviceCaller
from farmiq.edge.media import rules, store, upload
from farmiq.edge.media.handlers import ImageChecker
from farmiq.edge.media.rules import UploadRequest
from farmiq.edge.media.store import Image
from farmiq.messages import media
from farmiq.messages.check import InvalidError
from farmiq.messages.media import ImageToUpload, ImageType, UploadAddress
from farmiq.messages.topics import Place
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.allowance import Allowance
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.images import gallery
from farmiq.plumbing.images.gallery import Gallery
from farmiq.plumbing.storage import objects

ROOT = "/api/v1/media/images"
MAX_BYTES = 16 * 1024
MAX_ROWS = 1000
# A PUT that began just before its address expired may still be on its way.
GRACE_S = 5.0

UploadStatus = Literal["presigned", "stored", "missing"]
STATES: tuple[UploadStatus, ...] = get_args(UploadStatus)


class ImageFilter(api.PlaceFilter):
    """Which images, newest capture first."""

    station: Id | None = None
    session: UUID | None = None
    status: Annotated[UploadStatus | None, api.any_case(STATES)] = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 100


class EdgeImage(api.Model):
    """An image as the edge knows it.

    `stored`: its bytes are here and right. `missing`: they were announced and are not here, or what
    was uploaded was refused (`refused_reason`) and lies aside. `synced_at`: the cloud has them.
    """

    media_id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str | None
    session_id: UUID | None
    mime_type: ImageType
    size_bytes: int | None
    sha256: str | None
    captured_at: At
    created_at: At
    upload_status: UploadStatus
    announced_at: At | None
    stored_at: At | None
    synced_at: At | None
    refused_at: At | None
    refused_reason: str | None


class EdgeImageDetail(EdgeImage):
    object_key: str
    bucket: str


class EdgeImages(api.Model):
    """Newest capture first; `next_cursor` asks for the next page, null: there is none."""

    images: list[EdgeImage]
    next_cursor: str | None


async def _presign_headers(
    x_request_id: Annotated[
        UUID | None,
        Header(description="The same id has the same answer and no second image."),
    ] = None,
) -> None:
    """For the document; the handler reads it itself."""


class Api(api.Routes):
    """Without a bucket every route says so, and lists still work."""

    def __init__(
        self,
        settings: EdgeSettings,
        pool: db.Pool,
        bucket: objects.Bucket | None,
        checker: ImageChecker | None,
    ) -> None:
        self._settings, self.pool, self._bucket, self._checker = settings, pool, bucket, checker
        self._gallery = Gallery(bucket, site="edge")
        self._uploads = upload.Uploads(settings, pool, bucket) if bucket else None
        self._allowance = Allowance(settings.media_presigns_per_minute)

    # --- for devices

    @route(
        "POST",
        media.PRESIGN,
        route_class_override=http.RawRoute,
        operation_id="presignImage",
        dependencies=[
            Depends(access.DeviceToken()),
            Depends(_presign_headers),
            Depends(BodyOf(ImageToUpload, max_bytes=MAX_BYTES)),
            Depends(ResponseOf(UploadAddress, description="Where to put it.")),
        ],
        responses={
            403: "FORBIDDEN: the body speaks of somebody else; `details` says where.",
            409: "CONFLICT: this mediaId or x-request-id was used for an image of another content.",
            413: f"PAYLOAD_TOO_LARGE: the image is, or the request has more than {MAX_BYTES} "
            "bytes.",
            429: "TOO_MANY_REQUESTS: the device asks too often, or uploads too many bytes in an "
            "hour; see Retry-After.",
            503: "UNAVAILABLE: the database or the object store is away, or there is none.",
        },
    )
    async def presign(self, request: Request) -> Response:
        """Where a device may put an image.

        PUT the bytes to `upload_url` with `required_headers`; without contentLength it is one of
        the edge's, which answers 413 above 10 MiB. The same x-request-id has the same media_id;
        `mediaId` asks about the same image again, and answers `stored` if it is whole in the store.
        """
        caller = await access.require_device(request, self.pool)
        self._allow(caller)
        upload_request = _read(
            await http.body(request, what="a request", max_bytes=MAX_BYTES),
            max_bytes=self._settings.media_max_bytes,
        )
        place = Place(caller.tenant_id, caller.farm_id, caller.barn_id, caller.device_id)
        if not_own := rules.not_its_own(upload_request, place, caller.station_id):
            raise HttpError(403, "a device asks for its own images", details=_details(not_own))
        bucket, checker = self._store()
        try:
            image = await self._image(upload_request, _request_id(request), caller, bucket.name)
            if upload_request.media_id is not None and not image.stored:
                image = await self._settled(checker, image)
            address = await self._address(request, bucket, upload_request, image)
        except objects.UNAVAILABLE as error:
            why = f"the object store is away: {error}"[:300]
            raise HttpError(503, why, retry_after_s=5) from error
        return Response(msgspec.json.encode(address), media_type=http.JSON)

    async def _image(
        self,
        upload_request: UploadRequest,
        request_id: UUID | None,
        caller: DeviceCaller,
        bucket: str,
    ) -> Image:
        """The image that is meant: one that is known, or a new one. Raises HttpError 403, 409."""
        async with db.transaction(self.pool) as tx:
            image = await _known(tx, upload_request, request_id)
            if image is None:
                # An edge that was restored has forgotten ids that it gave; they stay good (C-43).
                media_id = upload_request.media_id or ids.new()
                await store.add(
                    tx, upload_request, media_id=media_id, request_id=request_id,
                    station_id=caller.station_id, bucket=bucket,
                )  # fmt: skip
                image = await _known(tx, upload_request, request_id) or await store.by_id(
                    tx, media_id
                )
            assert image is not None  # noqa: S101 - it was there, or was added just now
            if image.owner != caller.name:
                raise HttpError(403, f"image {image.id} is another device's")
            if image.declared_type is None:
                await store.adopt(tx, upload_request, image.id, bucket=bucket)
                image = await store.by_id(tx, image.id) or image
            if differences := rules.differences(upload_request, image.declared):
                raise HttpError(
                    409,
                    "this mediaId or x-request-id was used for another image",
                    details=_details(differences),
                )
        return image

    async def _settled(self, checker: ImageChecker, image: Image) -> Image:
        """As it is after a look: perhaps it was uploaded and the answer got lost."""
        await checker.check(image)
        async with db.transaction(self.pool) as tx:
            return await store.by_id(tx, image.id) or image

    @route("PUT", upload.ROUTE, route_class_override=http.RawRoute, include_in_schema=False)
    async def upload(self, request: Request) -> Response:
        if self._uploads is None:
            raise gallery.no_store("edge")
        return await self._uploads.put(request)

    async def _address(
        self, request: Request, bucket: objects.Bucket, upload_request: UploadRequest, image: Image
    ) -> UploadAddress:
        lifetime_s = self._settings.media_presign_s
        expires_at = datetime.now(UTC) + timedelta(seconds=lifetime_s)
        size_bytes = image.declared_size_bytes or upload_request.size_bytes
        if size_bytes is None and self._uploads is not None:
            url, headers = self._uploads.address(
                request, image, content_type=upload_request.content_type, expires_at=expires_at
            )
        else:
            if self._uploads is not None and size_bytes is not None and not image.stored:
                self._uploads.count(image.owner, size_bytes)
            url, headers = bucket.upload(
                image.object_key,
                lifetime_s=lifetime_s,
                content_type=upload_request.content_type,
                size_bytes=size_bytes,
                sha256=image.declared_sha256 or upload_request.sha256,
            )
        if not image.stored:
            async with db.transaction(self.pool) as tx:
                await store.presigned(
                    tx, upload_request, image.id, check_after_s=lifetime_s + GRACE_S
                )
        whole: dict[str, Any] = {}
        if image.stored:
            whole = {"stored": True, "size_bytes": image.size_bytes, "sha256": image.sha256}
        return UploadAddress(
            upload_url=url,
            media_id=image.id,
            expires_at=expires_at,
            required_headers=headers,
            **whole,
        )

    def _allow(self, caller: DeviceCaller) -> None:
        wait_s = self._allowance.take(caller.name, now=time.monotonic())
        if wait_s:
            raise HttpError(
                429,
                f"device {caller.name} asks for too many uploads",
                retry_after_s=int(wait_s) + 1,
            )

    # --- for people

    @route("GET", ROOT, EdgeImages)
    async def ls(self, caller: access.Viewer, query: Annotated[ImageFilter, Query()]) -> Any:
        """Images, newest capture first."""
        wanted = {**query.page(), "tenant": caller.tenant(query.tenant)}
        async with self.pool.connection(timeout=5.0) as connection:
            images = await store.page(connection, wanted)
        rows, following = api.cut(images, query.limit, at="captured_at", key="media_id")
        images = [{name: row[name] for name in store.SHOWN} for row in rows]
        return {"images": images, "next_cursor": following}

    @route(
        "GET",
        f"{ROOT}/{{media_id}}/detail",
        EdgeImageDetail,
        responses={404: "NOT_FOUND: there is no such image."},
    )
    async def detail(self, caller: access.Viewer, media_id: UUID) -> Any:
        """What is known of an image."""
        return await self._row(caller, media_id)

    @route("GET", f"{ROOT}/{{media_id}}", **Gallery.document())
    async def image(self, request: Request, caller: access.Viewer, media_id: UUID) -> Response:
        """The picture as it was taken, without EXIF and other metadata."""
        row = await self._stored(caller, media_id)
        return await self._gallery.whole(
            request, row["object_key"], row["sha256"], row["mime_type"]
        )

    @route("GET", f"{ROOT}/{{media_id}}/thumbnail", **Gallery.document())
    async def thumbnail(self, request: Request, caller: access.Viewer, media_id: UUID) -> Response:
        """A small picture of it, at most 320 pixels wide and high."""
        row = await self._stored(caller, media_id)
        return await self._gallery.small(request, row["object_key"], row["sha256"])

    async def _stored(self, caller: access.Caller, media_id: UUID) -> Mapping[str, Any]:
        row = await self._row(caller, media_id)
        if row["upload_status"] != "stored":
            why = row["refused_reason"] or "it was not uploaded yet"
            raise HttpError(404, f"image {row['media_id']} is not in the store: {why}"[:500])
        return row

    async def _row(self, caller: access.Caller, media_id: UUID) -> Mapping[str, Any]:
        async with self.pool.connection(timeout=5.0) as connection:
            row = await store.show(connection, media_id)
        if row is None or not caller.reaches(row["tenant_id"]):
            raise HttpError(404, "there is no such image")
        return row

    def _store(self) -> tuple[objects.Bucket, ImageChecker]:
        if self._bucket is None or self._checker is None:
            raise gallery.no_store("edge")
        return self._bucket, self._checker


async def _known(
    tx: db.Connection, upload_request: UploadRequest, request_id: UUID | None
) -> Image | None:
    if upload_request.media_id is not None:
        return await store.by_id(tx, upload_request.media_id)
    return await store.by_request(tx, upload_request, request_id) if request_id else None


def _read(raw: bytes, *, max_bytes: int) -> UploadRequest:
    try:
        return rules.read(raw, max_bytes=max_bytes)
    except rules.TooLargeError as large:
        raise HttpError(413, str(large)) from None
    except InvalidError as invalid:
        details = [api.detail(reason) for reason in invalid.reasons]
        raise HttpError(400, api.NOT_VALID, details=details) from None


def _request_id(request: Request) -> UUID | None:
    given = request.headers.get("x-request-id")
    if not given:
        return None
    try:
        return UUID(given)
    except ValueError:
        raise api.invalid(("x-request-id", "is not a UUID")) from None


def _details(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"field": field, "reason": reason} for field, reason in pairs]
