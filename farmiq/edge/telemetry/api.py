"""Telemetry's HTTP routes at the edge: the newest readings, and those of a time. For viewers."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from fastapi import Query
from fastapi.responses import StreamingResponse
from pydantic import Field, ValidationInfo, field_validator

from farmiq import api
from farmiq.api import Id, Instant, route
from farmiq.edge import access
from farmiq.edge.telemetry import queries, store
from farmiq.edge.telemetry.queries import From, Place, Span, TelemetryBucket, TelemetryReading
from farmiq.farm import buckets, points
from farmiq.messages.ids import Id as IdText
from farmiq.plumbing import db, sheet

LATEST = "/api/v1/telemetry/latest"
RANGE = "/api/v1/telemetry/range"
MAX_ROWS = 5000
# Raw readings are offered by themselves for at most a day; more are counted for too long.
_MAX_RAW_SPAN = timedelta(days=1)
_CSV_ROWS = 1000
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
_AFTER_ALL = datetime.max.replace(tzinfo=UTC)
_NO_ID = UUID(int=0)

Bucket = Literal["raw", "1m", "1h", "1d"]
# What one request may span: a stream of readings is bounded by its time.
MAX_SPAN: dict[Bucket, timedelta] = {
    "raw": timedelta(days=31),
    "1m": timedelta(days=31),
    "1h": timedelta(days=366),
    "1d": timedelta(days=3660),
}
Row = TelemetryReading | TelemetryBucket


# --- cursors


class SeriesPosition(msgspec.Struct, frozen=True, array_like=True):
    """The last series of a page."""

    tenant_id: IdText
    device_id: IdText
    metric_type: IdText

    def key(self) -> tuple[str, str, str]:
        return self.tenant_id, self.device_id, self.metric_type


class RowPosition(msgspec.Struct, frozen=True, array_like=True):
    """The last row of a page."""

    bucket: Bucket
    device_id: IdText
    metric_type: IdText
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    id: UUID


# --- parameters and responses


class PlaceFilter(api.Filter):
    farm: Id | None = None
    barn: Id | None = None
    device: Id | None = None
    metric: Id | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 1000

    def place(self, tenant: str | None) -> Place:
        return {
            "tenant": tenant,
            **self.model_dump(include={"farm", "barn", "device", "metric"}),
        }


class LatestFilter(PlaceFilter):
    tenant: Id | None = None
    cursor: Annotated[SeriesPosition, api.cursor_of(SeriesPosition)] | None = None


class RangeFilter(PlaceFilter):
    tenant: Id
    bucket: Bucket | None = None
    cursor: Annotated[RowPosition, api.cursor_of(RowPosition)] | None = None
    begin: Annotated[Instant, Field(alias="from")]
    end: Annotated[Instant, Field(alias="to")]
    format: api.Format = "json"

    @field_validator("cursor")
    @classmethod
    def _of_this_bucket(cls, at: RowPosition | None, info: ValidationInfo) -> RowPosition | None:
        if at is not None and info.data.get("bucket") not in (None, at.bucket):
            raise ValueError(f"belongs to bucket={at.bucket}")
        return at

    @field_validator("end")
    @classmethod
    def _within_max_span(cls, end: datetime, info: ValidationInfo) -> datetime:
        begin, position = info.data.get("begin"), info.data.get("cursor")
        bucket = info.data.get("bucket") or (position.bucket if position else None)
        points.check_span(begin, end, bucket=bucket, max_spans=MAX_SPAN)
        return end

    @property
    def chosen_bucket(self) -> Bucket | None:
        """A page goes on in the buckets that the first page chose."""
        return self.bucket or (self.cursor.bucket if self.cursor else None)

    def span(self) -> Span:
        return {**self.place(self.tenant), "from": self.begin, "to": self.end}


class LatestReadings(api.Model):
    """`next_cursor` asks for the next page; null: there is none."""

    readings: list[TelemetryReading]
    next_cursor: str | None


class TelemetryRange(api.Model):
    """Points by device, metric and time: readings if `bucket` is raw, else buckets."""

    bucket: Bucket
    from_: Annotated[api.At, Field(alias="from")]
    to: api.At
    points: list[TelemetryReading | TelemetryBucket]
    next_cursor: str | None


# --- routes


@dataclass(frozen=True, slots=True)
class Api(api.Routes):
    pool: db.Pool

    @route("GET", LATEST)
    async def latest(
        self, caller: access.Viewer, query: Annotated[LatestFilter, Query()]
    ) -> LatestReadings:
        """The newest reading of every series."""
        place = query.place(caller.tenant(query.tenant))
        after = query.cursor.key() if query.cursor else None
        async with self.pool.connection(timeout=5.0) as connection:
            readings = await queries.latest(connection, place, after=after, limit=query.limit)
        following = None
        if len(readings) == query.limit:
            last = readings[-1]
            following = api.cursor(last.tenant_id, last.device_id, last.metric_type)
        return LatestReadings(readings=readings, next_cursor=following)

    @route("GET", RANGE, TelemetryRange, responses={200: api.CSV})
    async def range(self, caller: access.Viewer, query: Annotated[RangeFilter, Query()]) -> Any:
        """Readings or buckets of a time: by page, or all of them as CSV."""
        caller.tenant(query.tenant)
        bucket = query.chosen_bucket or await self._choose(query)
        walk = Walk(self.pool, query, bucket)
        if query.format == "json":
            rows = await walk.page(query.limit)
            return TelemetryRange(
                bucket=bucket,
                from_=query.begin,
                to=query.end,
                points=rows,
                next_cursor=walk.cursor,
            )
        # The first portion is fetched before the answer begins: it can still be a 503.
        first = await walk.page(_CSV_ROWS)
        return StreamingResponse(
            _csv(walk, first, bucket),
            media_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="telemetry-{bucket}.csv"'},
        )

    async def _choose(self, query: RangeFilter) -> Bucket:
        """The finest that gives at most about a thousand points."""
        length, span = query.end - query.begin, query.span()
        async with self.pool.connection(timeout=5.0) as connection:
            if length <= _MAX_RAW_SPAN and query.begin >= await store.ROLLUPS.raw_from(connection):
                limit = buckets.MAX_POINTS
                if await queries.count_readings(connection, span, limit=limit + 1) <= limit:
                    return "raw"
            some = await queries.series(
                connection, span, after=("", ""), limit=buckets.MAX_POINTS + 1
            )
        return buckets.finest_window(length, series=len(some))


class Walk:
    """Through the rows of a range, series by series, a portion at a time.

    Each portion is a statement of its own: an answer of any length holds no lock and no memory.
    """

    def __init__(self, pool: db.Pool, query: RangeFilter, bucket: Bucket) -> None:
        self._pool, self._span, self._bucket = pool, query.span(), bucket
        self._after = query.cursor
        self.ended = False

    async def page(self, limit: int) -> list[Row]:
        """The next rows, `limit` if there are as many. `ended` says that these were the last."""
        rows: list[Row] = []
        async with self._pool.connection(timeout=5.0) as connection:
            while len(rows) < limit and not self.ended:
                rows += await self._portion(connection, limit - len(rows))
        return rows

    @property
    def cursor(self) -> str | None:
        if self.ended or self._after is None:
            return None
        return api.cursor(*msgspec.structs.astuple(self._after))

    async def _portion(self, connection: db.Connection, limit: int) -> Sequence[Row]:
        some = await self._some_series(connection)
        rows = await self._rows(connection, some, limit)
        if len(rows) == limit:
            last = rows[-1]
            self._after = RowPosition(
                self._bucket, last.device_id, last.metric_type, last.at, last.id
            )
        elif len(some) < queries.SERIES_AT_ONCE:
            self.ended = True
        else:
            # These series are through: on behind the last of them.
            end = some[-1]
            self._after = RowPosition(
                self._bucket, end.device_id, end.metric_type, _AFTER_ALL, _NO_ID
            )
        return rows

    async def _some_series(self, connection: db.Connection) -> list[From]:
        """The series that a portion is on, from where it is, and the next ones from their start."""
        after, limit = self._after, queries.SERIES_AT_ONCE
        if after is None:
            rows = await queries.series(connection, self._span, after=("", ""), limit=limit)
            return [From(*series, _BEFORE_ALL, _NO_ID) for series in rows]
        here = From(after.device_id, after.metric_type, after.at, after.id)
        rows = await queries.series(
            connection, self._span, after=(after.device_id, after.metric_type), limit=limit - 1
        )
        return [here, *(From(*series, _BEFORE_ALL, _NO_ID) for series in rows)]

    async def _rows(
        self, connection: db.Connection, some: Sequence[From], limit: int
    ) -> Sequence[Row]:
        if self._bucket == "raw":
            return await queries.readings(connection, self._span, some, limit=limit)
        return await queries.buckets(connection, self._span, some, window=self._bucket, limit=limit)


async def _csv(walk: Walk, first: Sequence[Row], bucket: Bucket) -> AsyncIterator[str]:
    names = [
        field.name for field in fields(TelemetryReading if bucket == "raw" else TelemetryBucket)
    ]
    yield sheet.lines([names])
    rows = first
    while rows:
        yield sheet.lines([getattr(row, name) for name in names] for row in rows)
        rows = [] if walk.ended else await walk.page(_CSV_ROWS)
