"""Pictures of a bucket over HTTP: whole without what they tell of a place, or small."""

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import Request, Response

from farmiq.plumbing.http import JSON, HttpError
from farmiq.plumbing.images import decoding, pictures
from farmiq.plumbing.images.decoding import DecodeError, DecoderGoneError
from farmiq.plumbing.storage import objects

# Each takes the picture's bytes.
AT_ONCE = 3
# The pixels of a photograph of 40 million; a picture that takes more is not shown.
LIMITS = decoding.Limits(memory_bytes=400 * 2**20, cpu_s=20)
SMALL = "thumbnails/"
NOT_CHANGED = 304
# Nobody else's, and asked for again each time: who may see it may change. The picture never does.
_HEADERS = {
    "Cache-Control": "private, no-cache",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'",
    "Content-Disposition": "inline",
}


class Gallery:
    """Small pictures are made when they are first asked for, and kept in the bucket.

    Without a bucket every picture is answered 503, which names the setting of the site.
    """

    def __init__(self, bucket: objects.Bucket | None, *, site: str) -> None:
        self._given, self._site = bucket, site
        self._at_once = asyncio.Semaphore(AT_ONCE)

    @property
    def _bucket(self) -> objects.Bucket:
        if self._given is None:
            raise no_store(self._site)
        return self._given

    @staticmethod
    def document() -> dict[str, Any]:
        """What the OpenAPI document says of a route that shows a picture."""
        types = ("image/jpeg", "image/png", "image/webp")
        return {
            "response_class": Response,
            "response_description": "The picture.",
            "responses": {
                200: {"content": {name: {"schema": {}} for name in types}},
                304: {"description": "It is the one of If-None-Match."},
                503: {
                    "description": "UNAVAILABLE: the database or the object store is away.",
                    "content": {JSON: {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
                },
            },
        }

    async def whole(self, request: Request, key: str, sha256: str, mime_type: str) -> Response:
        """Raises HttpError 404 if the bytes are gone, 503 if the store is unreachable or absent."""
        tag = f'"{sha256}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=NOT_CHANGED, headers={**_HEADERS, "ETag": tag})
        async with self._at_once:
            data = await self._made(await self._get(key), pictures.bare)
        return Response(data, media_type=mime_type, headers={**_HEADERS, "ETag": tag})

    async def small(self, request: Request, key: str, sha256: str) -> Response:
        tag = f'"{sha256}-small"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=NOT_CHANGED, headers={**_HEADERS, "ETag": tag})
        async with self._at_once:
            data = await self.small_data(key)
        return Response(data, media_type=pictures.JPEG, headers={**_HEADERS, "ETag": tag})

    async def small_data(self, key: str) -> bytes:
        """The small picture alone. Raises HttpError as `whole` does."""
        try:
            known = await self._bucket.find(small_key(key))
            if known is not None:
                return known
            made = await self._made(await self._get(key), _thumbnail)
            await self._bucket.put(small_key(key), made, content_type=pictures.JPEG)
        except objects.UNAVAILABLE as error:
            raise _unavailable(error) from error
        return made

    async def _get(self, key: str) -> bytes:
        try:
            data = await self._bucket.find(key)
        except objects.UNAVAILABLE as error:
            raise _unavailable(error) from error
        if data is None:
            raise HttpError(404, "the picture's bytes are not in the store any more")
        return data

    async def _made(self, data: bytes, make: Callable[[bytes], bytes]) -> bytes:
        try:
            return await asyncio.to_thread(make, data)
        except (pictures.UnreadableError, DecodeError) as error:
            raise HttpError(404, f"this picture cannot be shown: {error}") from None
        except DecoderGoneError as error:
            raise HttpError(503, str(error), retry_after_s=5) from None


def _thumbnail(data: bytes) -> bytes:
    return decoding.decode("thumbnail", data, limits=LIMITS).data


def small_key(key: str) -> str:
    return f"{SMALL}{key}.jpg"


def no_store(site: str) -> HttpError:
    """503 for a site whose settings name no bucket."""
    why = f"this {site} has no object store (FARMIQ_{site.upper()}_S3_URL)"
    return HttpError(503, why, retry_after_s=60)


def _unavailable(error: BaseException) -> HttpError:
    return HttpError(503, f"the object store is away: {error}"[:300], retry_after_s=5)
