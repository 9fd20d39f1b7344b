"""Images for people: lists, pictures and small pictures, as row level security shows them.

Who calls is a sign-in of the console: its cookie, or its token as `Authorization: Bearer …`.
Another company's image is not there: 404.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from farmiq.asked import Wrong, cursor, uuid
from farmiq.cloud.identity import session
from farmiq.cloud.identity.desk import Desk
from farmiq.cloud.media import ask, store
from farmiq.plumbing import db
from farmiq.plumbing.gallery import Gallery
from farmiq.plumbing.http import HttpError

ROOT = "/api/v1/media/images"
NO_STORE = {"Cache-Control": "no-store"}


@dataclass
class Api:
    pool: db.Pool
    desk: Desk
    gallery: Gallery | None

    def add_to(self, app: FastAPI) -> None:
        app.add_route(ROOT, self.ls, methods=["GET"])
        app.add_route(f"{ROOT}/{{media_id}}", self.image, methods=["GET"])
        app.add_route(f"{ROOT}/{{media_id}}/detail", self.detail, methods=["GET"])
        app.add_route(f"{ROOT}/{{media_id}}/thumbnail", self.thumbnail, methods=["GET"])

    async def ls(self, request: Request) -> Response:
        try:
            asked = ask.read(request.query_params.multi_items())
        except Wrong as wrong:
            raise HttpError(400, "the request is not valid", details=wrong.details) from None
        async with self._as_person(request, asked.company) as connection:
            begin, end = ask.bounds(asked.day, await store.timezone(connection))
            # One more than asked for says whether there is a next page.
            wanted = {**asdict(asked), "begin": begin, "end": end, "limit": asked.limit + 1}
            rows = await store.page(connection, wanted)
        last = rows[asked.limit - 1] if len(rows) > asked.limit else None
        following = cursor(last["captured_at"], last["media_id"]) if last else None
        images = [shown(row) for row in rows[: asked.limit]]
        return JSONResponse({"images": images, "next_cursor": following}, headers=NO_STORE)

    async def detail(self, request: Request) -> Response:
        return JSONResponse(shown(await self._row(request)), headers=NO_STORE)

    async def image(self, request: Request) -> Response:
        row, gallery = await self._stored(request)
        return await gallery.whole(request, row["object_key"], row["sha256"], row["mime_type"])

    async def thumbnail(self, request: Request) -> Response:
        row, gallery = await self._stored(request)
        return await gallery.small(request, row["object_key"], row["sha256"])

    async def _stored(self, request: Request) -> tuple[Mapping[str, Any], Gallery]:
        row = await self._row(request)
        if row["stored_at"] is None:
            raise HttpError(404, "this image is still at its edge; it comes when the edge can")
        if self.gallery is None:
            raise HttpError(
                503, "this cloud has no object store (FARMIQ_CLOUD_S3_URL)", retry_after_s=60
            )
        return row, self.gallery

    async def _row(self, request: Request) -> Mapping[str, Any]:
        asked = request.query_params.get("company")
        async with self._as_person(request, _uuid(asked) if asked else None) as connection:
            row = await store.one(connection, _uuid(request.path_params["media_id"]))
        if row is None:
            raise _not_there()
        return row

    @asynccontextmanager
    async def _as_person(
        self, request: Request, company: UUID | None
    ) -> AsyncIterator[db.Connection]:
        try:
            signed_in = await self.desk.signed_in(request)
            if signed_in is None:
                raise HttpError(401, "sign in first")
            async with session.as_person(
                self.pool, signed_in.token, company_id=company
            ) as connection:
                yield connection
        except session.SignedOut:
            raise HttpError(401, "sign in first") from None
        except (session.NotYours, session.NoSuchCompany):
            raise HttpError(404, "there is no such company") from None
        except db.UNAVAILABLE as error:
            raise HttpError(503, "the database is away; try again", retry_after_s=5) from error


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(row[name]) for name in store.SHOWN}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, UUID) else value


def _uuid(text: str) -> UUID:
    """What is no id at all is simply not there; who asks has to be known first."""
    try:
        return uuid(text)
    except ValueError:
        return UUID(int=0)


def _not_there() -> HttpError:
    return HttpError(404, "there is no such image")
