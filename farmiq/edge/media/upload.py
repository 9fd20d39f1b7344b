"""Uploads of unknown length: they pass through us, and the largest size accepted limits them.

A store's address that signs no length accepts any number of bytes. A request without
`contentLength` gets an address of ours instead, signed the same way; it answers as the store does.
"""

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from fastapi import Request, Response

from farmiq.config import EdgeSettings
from farmiq.edge.media import store
from farmiq.edge.media.store import Image
from farmiq.plumbing import db
from farmiq.plumbing.allowance import HOUR_S, Allowance
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.storage import objects

# Not among the routes for programs: only we make such an address.
ROUTE = "/media/uploads/{media_id}"
# So many go to the store at once; so many are in memory, each a whole image of another device.
MAX_CONCURRENT = 4
MAX_BODIES = 16
_SCHEMES = {"http", "https"}


class Uploads:
    def __init__(self, settings: EdgeSettings, pool: db.Pool, bucket: objects.Bucket) -> None:
        self._max_bytes, self._pool, self._bucket = settings.media_max_bytes, pool, bucket
        # All processes of an edge have the same secret, and nobody else has it.
        secret = settings.s3_url.get_secret_value() if settings.s3_url else ""
        self._key = hashlib.sha256(b"farmiq media upload " + secret.encode()).digest()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._bytes = Allowance(settings.media_bytes_per_hour, over_s=HOUR_S)
        # The devices whose bodies are under way: a slow sender delays nobody else.
        self._sending: set[str] = set()

    def address(
        self, request: Request, image: Image, *, content_type: str, expires_at: datetime
    ) -> tuple[str, dict[str, str]]:
        """(address, headers) of one PUT, at the host by which the device has reached us."""
        expires = int(expires_at.timestamp())
        forwarded = request.headers.get("x-forwarded-proto", "")
        scheme = forwarded if forwarded in _SCHEMES else request.url.scheme
        path = ROUTE.format(media_id=image.id)
        signature = sign(self._key, image.id, content_type, expires)
        url = f"{scheme}://{request.url.netloc}{path}?expires={expires}&signature={signature}"
        return url, {"Content-Type": content_type, "If-None-Match": "*"}

    async def put(self, request: Request) -> Response:
        """Store the body once: 403 for another address, 412 if one was stored, 413 if too large.

        Nothing of a body that is too large reaches the store. 429 while another image of the device
        is under way or its bytes of the hour are used up, 503 while memory has no room for another
        body.
        """
        media_id = self._verify_address(request)
        # A body in parts says no size, whatever another header says.
        in_parts = "transfer-encoding" in request.headers
        given = None if in_parts else request.headers.get("content-length")
        size_bytes = self._max_bytes if given is None else int(given)
        if size_bytes > self._max_bytes:
            raise self._too_large()
        try:
            async with db.transaction(self._pool) as tx:
                image = await store.by_id(tx, media_id)
            if image is None:
                raise _not_ours()
            with self.reserved(image.owner):
                await self._put(request, image, size_bytes)
        except objects.UNAVAILABLE as error:
            raise HttpError(
                503, f"the object store is away: {error}"[:300], retry_after_s=5
            ) from error
        return Response(status_code=200)

    def count(self, device: str, size_bytes: int) -> None:
        """Count bytes that the device is about to send, good or not. Raises HttpError."""
        wait_s = self._bytes.take(device, now=time.monotonic(), amount=size_bytes)
        if wait_s:
            raise HttpError(
                429,
                f"device {device} has uploaded as many bytes as it may in an hour",
                retry_after_s=int(wait_s) + 1,
            )

    async def _put(self, request: Request, image: Image, size_bytes: int) -> None:
        exists = HttpError(412, "an image was uploaded there already: ask again with mediaId")
        if await self._bucket.head(image.object_key) is not None:
            raise exists
        self.count(image.owner, size_bytes)
        data, mime_type = await self.read_body(request), request.headers["content-type"]
        if image.declared_sha256 not in (None, hashlib.sha256(data).hexdigest()):
            raise HttpError(400, "the bytes are not those of the declared sha256")
        async with self._slots:
            if not await self._bucket.put_new(image.object_key, data, content_type=mime_type):
                raise exists

    async def read_body(self, request: Request) -> bytes:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._max_bytes:
                raise self._too_large()
        return bytes(body)

    def _verify_address(self, request: Request) -> UUID:
        """The image that the address is for, if we signed it and it has not expired."""
        try:
            media_id = UUID(request.path_params["media_id"])
            expires = int(request.query_params["expires"])
            given = request.query_params["signature"]
            expected = sign(self._key, media_id, request.headers["content-type"], expires)
        except (KeyError, ValueError):
            raise _not_ours() from None
        if not hmac.compare_digest(expected.encode(), given.encode()) or time.time() > expires:
            raise _not_ours()
        return media_id

    @contextlib.contextmanager
    def reserved(self, device: str) -> Iterator[None]:
        """Reserve memory for one body. Raises HttpError."""
        if device in self._sending:
            raise HttpError(429, "another image of this device is being sent", retry_after_s=5)
        if len(self._sending) >= MAX_BODIES:
            raise HttpError(503, "too many images are being sent at once", retry_after_s=5)
        self._sending.add(device)
        try:
            yield
        finally:
            self._sending.discard(device)

    def _too_large(self) -> HttpError:
        return HttpError(413, f"an image has at most {self._max_bytes} bytes")


def sign(key: bytes, media_id: UUID, content_type: str, expires: int) -> str:
    text = f"{media_id} {content_type} {expires}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _not_ours() -> HttpError:
    return HttpError(403, "this address is not good (any more): ask for another one")
