"""Telemetry's HTTP routes at the edge: the newest readings, and those of a time. For viewers."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from farmiq.asked import Wrong
from farmiq.edge import access
from farmiq.edge.telemetry import ask, look, rules, store
from farmiq.edge.telemetry.ask import After, Bucket, Range
from farmiq.edge.telemetry.look import Bucketful, From, Reading
from farmiq.plumbing import db, http, sheet

LATEST = "/api/v1/telemetry/latest"
RANGE = "/api/v1/telemetry/range"
_NO_STORE = {"Cache-Control": "no-store"}
# Raw readings are offered by themselves for at most a day; more are counted for too long.
_RAW_AT_MOST = timedelta(days=1)
_CSV_ROWS = 1000
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
_AFTER_ALL = datetime.max.replace(tzinfo=UTC)
_NO_ID = UUID(int=0)

Row = Reading | Bucketful


def add_to(app: FastAPI, pool: db.Pool) -> None:
    answers = Answers(pool)
    app.add_api_route(LATEST, answers.latest, methods=["GET"], include_in_schema=False)
    app.add_api_route(RANGE, answers.range, methods=["GET"], include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the routes answer."""

    pool: db.Pool

    async def latest(self, request: Request) -> Response:
        caller = await access.require(request, self.pool, "viewer", by_tenant=True)
        try:
            asked = ask.latest(request.query_params.multi_items())
        except Wrong as wrong:
            raise _bad(wrong) from None
        tenant = caller.tenant(asked.place.tenant)
        asked = replace(asked, place=replace(asked.place, tenant=tenant))
        try:
            async with self.pool.connection(timeout=5.0) as connection:
                found = await look.latest(connection, asked)
        except db.UNAVAILABLE as error:
            raise _away() from error
        last = found[-1] if len(found) == asked.limit else None
        return _json(
            {
                "readings": [asdict(each) for each in found],
                "next_cursor": last
                and ask.cursor((last.tenant_id, last.device_id, last.metric_type)),
            }
        )

    async def range(self, request: Request) -> Response:
        caller = await access.require(request, self.pool, "viewer", by_tenant=True)
        try:
            asked = ask.range_(request.query_params.multi_items())
        except Wrong as wrong:
            raise _bad(wrong) from None
        caller.tenant(asked.place.tenant)
        try:
            bucket = asked.bucket or await self._choose(asked)
            walk = Walk(self.pool, asked, bucket)
            if not asked.csv:
                return _page(asked, walk, bucket, await walk.page(asked.limit))
            # The first portion is fetched before the answer begins: it can still be a 503.
            first = await walk.page(_CSV_ROWS)
        except db.UNAVAILABLE as error:
            raise _away() from error
        return StreamingResponse(
            _csv(walk, first, bucket),
            media_type="text/csv; charset=utf-8",
            headers={
                **_NO_STORE,
                "Content-Disposition": f'attachment; filename="telemetry-{bucket}.csv"',
            },
        )

    async def _choose(self, asked: Range) -> Bucket:
        """The finest that gives at most about a thousand points."""
        length = asked.ends_at - asked.starts_at
        async with self.pool.connection(timeout=5.0) as connection:
            if length <= _RAW_AT_MOST and asked.starts_at >= await store.raw_from(connection):
                most = rules.MAX_POINTS
                if await look.count_readings(connection, asked, most=most + 1) <= most:
                    return "raw"
            some = await look.series(
                connection, asked.place, after=("", ""), most=rules.MAX_POINTS + 1
            )
        return rules.finest_window(length, series=len(some))


class Walk:
    """Through the rows of a question, series by series, a portion at a time.

    Each portion is a statement of its own: an answer of any length holds no lock and no memory.
    """

    def __init__(self, pool: db.Pool, asked: Range, bucket: Bucket) -> None:
        self._pool, self._asked, self._bucket = pool, asked, bucket
        self._after = asked.after
        self.ended = False

    async def page(self, most: int) -> list[Row]:
        """The next rows, `most` if there are as many. `ended` says that these were the last."""
        found: list[Row] = []
        async with self._pool.connection(timeout=5.0) as connection:
            while len(found) < most and not self.ended:
                found += await self._portion(connection, most - len(found))
        return found

    @property
    def cursor(self) -> str | None:
        return None if self.ended or self._after is None else ask.cursor(self._after)

    async def _portion(self, connection: db.Connection, most: int) -> Sequence[Row]:
        some = await self._some_series(connection)
        rows = await self._rows(connection, some, most)
        if len(rows) == most:
            last = rows[-1]
            self._after = After(self._bucket, last.device_id, last.metric_type, last.at, last.id)
        elif len(some) < look.SERIES_AT_ONCE:
            self.ended = True
        else:
            # These series are through: on behind the last of them.
            end = some[-1]
            self._after = After(self._bucket, end.device_id, end.metric_type, _AFTER_ALL, _NO_ID)
        return rows

    async def _some_series(self, connection: db.Connection) -> list[From]:
        """The series that a portion is on, from where it is, and the next ones from their start."""
        after, most = self._after, look.SERIES_AT_ONCE
        if after is None:
            found = await look.series(connection, self._asked.place, after=("", ""), most=most)
            return [From(*each, _BEFORE_ALL, _NO_ID) for each in found]
        here = From(after.device_id, after.metric_type, after.at, after.id)
        found = await look.series(
            connection, self._asked.place, after=(after.device_id, after.metric_type), most=most - 1
        )
        return [here, *(From(*each, _BEFORE_ALL, _NO_ID) for each in found)]

    async def _rows(
        self, connection: db.Connection, some: Sequence[From], most: int
    ) -> Sequence[Row]:
        if self._bucket == "raw":
            return await look.readings(connection, self._asked, some, most=most)
        return await look.bucketfuls(connection, self._asked, some, window=self._bucket, most=most)


def _page(asked: Range, walk: Walk, bucket: Bucket, rows: Sequence[Row]) -> Response:
    return _json(
        {
            "bucket": bucket,
            "from": asked.starts_at,
            "to": asked.ends_at,
            "points": [asdict(row) for row in rows],
            "next_cursor": walk.cursor,
        }
    )


async def _csv(walk: Walk, first: Sequence[Row], bucket: Bucket) -> AsyncIterator[str]:
    names = [field.name for field in fields(Reading if bucket == "raw" else Bucketful)]
    yield sheet.lines([names])
    rows = first
    while rows:
        yield sheet.lines([getattr(row, name) for name in names] for row in rows)
        rows = [] if walk.ended else await walk.page(_CSV_ROWS)


def _json(answer: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=_NO_STORE)


def _bad(wrong: Wrong) -> http.HttpError:
    return http.HttpError(400, "the request is not valid", details=wrong.details)


def _away() -> http.HttpError:
    return http.HttpError(503, "the edge's database is away", retry_after_s=5)
