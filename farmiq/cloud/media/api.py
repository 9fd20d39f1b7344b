"""Images for people: lists, pictures and small pictures, as row level security shows them.

People authenticate by a sign-in of the console: its cookie, or its token as a bearer token. For an
image of another company the response is 404.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.api import At, Handler, PathId
from farmiq.cloud.identity import people, sign_in
from farmiq.cloud.identity.people import NO_COMPANY
from farmiq.cloud.media import store
from farmiq.farm import buckets
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.images.gallery import Gallery

ROOT = "/api/v1/media/images"
MAX_ROWS = 500


class CompanyFilter(api.Filter):
    company: UUID | None = None


class CloudImageFilter(api.PageFilter):
    """Which images, newest capture first. `day` is a day where the company is."""

    session: UUID | None = None
    device: api.Id | None = None
    day: api.Day | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 100
    company: UUID | None = None


class CloudImage(api.Model):
    """An image of the person's company. `told_at`: its event came. `stored_at`: its bytes did."""

    media_id: UUID
    farm_id: str | None
    barn_id: str | None
    device_id: str | None
    station_id: str | None
    session_id: UUID | None
    mime_type: str | None
    size_bytes: int | None
    sha256: str | None
    captured_at: At | None
    told_at: At | None
    stored_at: At | None


class CloudImages(api.Model):
    """Newest capture first; `next_cursor` asks for the next page, null: there is none."""

    images: list[CloudImage]
    next_cursor: str | None


def _route(path: str, model: Any = None, **options: Any) -> Callable[[Handler], Handler]:
    """A route for people who are signed in."""
    return people.route("GET", ROOT + path, model, **options)


@dataclass
class Api(api.Routes):
    sign_ins: sign_in.SignIns
    gallery: Gallery

    @_route(
        "",
        CloudImages,
        response_description="A page.",
        responses=NO_COMPANY,
    )
    async def ls(
        self, request: Request, response: Response, query: Annotated[CloudImageFilter, Query()]
    ) -> Any:
        """Images, newest capture first."""
        async with self._as_person(request, query.company) as connection:
            begin, end = bounds(query.day, await store.timezone(connection))
            fetched = await store.page(connection, {**query.page(), "begin": begin, "end": end})
        rows, following = api.cut(fetched, query.limit, at="captured_at", key="media_id")
        response.headers.update(api.NO_STORE)
        return {"images": [_shown(row) for row in rows], "next_cursor": following}

    @_route("/{media_id}", **Gallery.document())
    async def image(
        self, request: Request, media_id: PathId, query: Annotated[CompanyFilter, Query()]
    ) -> Response:
        """The picture as it was taken, without EXIF and other metadata."""
        row = await self._stored(request, media_id, query.company)
        return await self.gallery.whole(request, row["object_key"], row["sha256"], row["mime_type"])

    @_route(
        "/{media_id}/detail",
        CloudImage,
        response_description="All of it.",
        responses={404: "NOT_FOUND: there is no such image."},
    )
    async def detail(
        self,
        request: Request,
        response: Response,
        media_id: PathId,
        query: Annotated[CompanyFilter, Query()],
    ) -> Any:
        """What is known of an image."""
        response.headers.update(api.NO_STORE)
        return _shown(await self._row(request, media_id, query.company))

    @_route("/{media_id}/thumbnail", **Gallery.document())
    async def thumbnail(
        self, request: Request, media_id: PathId, query: Annotated[CompanyFilter, Query()]
    ) -> Response:
        """A small picture of it, at most 320 pixels wide and high."""
        row = await self._stored(request, media_id, query.company)
        return await self.gallery.small(request, row["object_key"], row["sha256"])

    async def _stored(
        self, request: Request, media_id: UUID, company: UUID | None
    ) -> Mapping[str, Any]:
        row = await self._row(request, media_id, company)
        if row["stored_at"] is None:
            raise HttpError(404, "this image is still at its edge; it comes when the edge can")
        return row

    async def _row(
        self, request: Request, media_id: UUID, company: UUID | None
    ) -> Mapping[str, Any]:
        async with self._as_person(request, company) as connection:
            row = await store.find(connection, media_id)
        if row is None:
            raise HttpError(404, "there is no such image")
        return row

    @asynccontextmanager
    async def _as_person(
        self, request: Request, company: UUID | None
    ) -> AsyncIterator[db.Connection]:
        signed_in = await self.sign_ins.require(request)
        async with self.sign_ins.as_person(signed_in, company_id=company) as connection:
            yield connection


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in store.SHOWN}


def bounds(day: date | None, timezone: str) -> tuple[datetime | None, datetime | None]:
    """When a day begins and ends where the company is."""
    if day is None:
        return None, None
    return buckets.midnight(day, timezone), buckets.midnight(day + timedelta(1), timezone)
