"""Uploads whose length nobody said: they come through us and end at the most that is taken.

An address of the store that signs no length takes any number of bytes. Who leaves `contentLength`
out gets an address of ours instead, signed as the store's own are; it answers as the store does.
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
from farmiq.plumbing import db, objects
from farmiq.plumbing.http import HttpError

# Not among the routes for programs: nobody makes such an address but we.
ROUTE = "/media/uploads/{media_id}"
# So many go to the store at once, and so many are in memory, each a whole image of another device.
AT_ONCE = 4
MOST_BODIES = 16
_SCHEMES = {"http", "https"}


class Uploads:
    def __init__(self, settings: EdgeSettings, pool: db.Pool, bucket: objects.Bucket) -> None:
        self._most_bytes, self._pool, self._bucket = settings.media_max_bytes, pool, bucket
        # All processes of an edge have the same secret, and nobody else has it.
        secret = settings.s3_url.get_secret_value() if settings.s3_url else ""
        self._key = hashlib.sha256(b"farmiq media upload " + secret.encode()).digest()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        # Whose bodies are under way: who sends slowly keeps nobody else waiting.
        self._sending: set[str] = set()

    def address(
        self, request: Request, image: Image, *, content_type: str, expires_at: datetime
    ) -> tuple[str, dict[str, str]]:
        """(address, headers) of one PUT, at the host by which the device has reached us."""
        expires = int(expires_at.timestamp())
        said = request.headers.get("x-forwarded-proto", "")
        scheme = said if said in _SCHEMES else request.url.scheme
        path = ROUTE.format(media_id=image.id)
        signature = sign(self._key, image.id, content_type, expires)
        url = f"{scheme}://{request.url.netloc}{path}?expires={expires}&signature={signature}"
        return url, {"Content-Type": content_type, "If-None-Match": "*"}

    async def put(self, request: Request) -> Response:
        """Store the body once: 403 for another address, 412 if one was stored, 413 if it is over.

        Nothing of a body that is too large reaches the store. 429 while another image of the device
        is under way, 503 while as many bodies are as memory has room for.
        """
        media_id = self._allowed(request)
        if _said_length(request) > self._most_bytes:
            raise self._too_large()
        try:
            image = await self._image(media_id)
            with self._place(image.owner):
                if await self._bucket.head(image.object_key) is not None:
                    raise _there_already()
                data = await self._body(request)
                if image.declared_sha256 not in (None, hashlib.sha256(data).hexdigest()):
                    raise HttpError(400, "the bytes are not those of the sha256 that was said")
                kind = request.headers["content-type"]
                async with self._at_once:
                    is_new = await self._bucket.put_new(image.object_key, data, content_type=kind)
                if not is_new:
                    raise _there_already()
        except db.UNAVAILABLE as error:
            raise HttpError(503, "the edge's database is away", retry_after_s=5) from error
        except objects.UNAVAILABLE as error:
            raise HttpError(
                503, f"the object store is away: {error}"[:300], retry_after_s=5
            ) from error
        return Response(status_code=200)

    def _allowed(self, request: Request) -> UUID:
        """Which image the address is for, if we signed it and its time is not over."""
        try:
            media_id = UUID(request.path_params["media_id"])
            expires = int(request.query_params["expires"])
            given = request.query_params["signature"]
            kind = request.headers["content-type"]
        except (KeyError, ValueError):
            raise _not_ours() from None
        good = hmac.compare_digest(
            sign(self._key, media_id, kind, expires).encode(), given.encode()
        )
        if not good or time.time() > expires:
            raise _not_ours()
        return media_id

    async def _image(self, media_id: UUID) -> Image:
        async with db.transaction(self._pool) as tx:
            image = await store.by_id(tx, media_id)
        if image is None:
            raise _not_ours()
        return image

    @contextlib.contextmanager
    def _place(self, device: str) -> Iterator[None]:
        """One of the bodies in memory. Raises HttpError."""
        if device in self._sending:
            raise HttpError(429, "another image of this device is being sent", retry_after_s=5)
        if len(self._sending) >= MOST_BODIES:
            raise HttpError(503, "too many images are being sent at once", retry_after_s=5)
        self._sending.add(device)
        try:
            yield
        finally:
            self._sending.discard(device)

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._most_bytes:
                raise self._too_large()
        return bytes(body)

    def _too_large(self) -> HttpError:
        return HttpError(413, f"an image has at most {self._most_bytes} bytes")


def sign(key: bytes, media_id: UUID, content_type: str, expires: int) -> str:
    said = f"{media_id} {content_type} {expires}"
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()


def _said_length(request: Request) -> int:
    """What the header says; the server has refused what is no number."""
    return int(request.headers.get("content-length") or 0)


def _not_ours() -> HttpError:
    return HttpError(403, "this address is not good (any more): ask for another one")


def _there_already() -> HttpError:
    return HttpError(412, "an image was uploaded there already: ask again with mediaId")
