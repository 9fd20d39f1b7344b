"""Telemetry's HTTP route in the cloud: the readings of a time, within a budget of points.

People authenticate by a sign-in of the console: its cookie, or its token as a bearer token. Row
level security decides what they see: another company's devices have no points.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query, Request, Response
from pydantic import Field, ValidationInfo, field_validator

from farmiq import api
from farmiq.api import Id, Instant
from farmiq.cloud import series
from farmiq.cloud.history import History, HistoryUnavailableError
from farmiq.cloud.identity import people, sign_in
from farmiq.cloud.identity.people import NO_COMPANY
from farmiq.cloud.series import CloudBucket, CloudReading, KnownSeries, Place
from farmiq.farm import points
from farmiq.farm.buckets import Window
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError

RANGE = "/api/v1/telemetry/range"
MAX_POINTS = 5000

CloudBucketName = Literal["raw", "1m", "1h", "1d"]
# What one request may span: readings are not counted for longer than a day.
MAX_SPAN: dict[CloudBucketName, timedelta] = {
    "raw": timedelta(days=1),
    "1m": timedelta(days=31),
    "1h": timedelta(days=731),
    "1d": timedelta(days=3660),
}


class CloudRangeFilter(api.Filter):
    """Which series, from when to when. Without `bucket` the finest within `limit` is taken."""

    farm: Id | None = None
    barn: Id | None = None
    device: Id | None = None
    metric: Id | None = None
    bucket: CloudBucketName | None = None
    begin: Annotated[Instant, Field(alias="from")]
    end: Annotated[Instant, Field(alias="to")]
    limit: Annotated[int, Field(ge=1, le=MAX_POINTS, description="At most so many points.")] = 1000
    company: UUID | None = None

    @field_validator("end")
    @classmethod
    def _within_max_span(cls, end: datetime, info: ValidationInfo) -> datetime:
        begin, bucket = info.data.get("begin"), info.data.get("bucket")
        points.check_span(begin, end, bucket=bucket, max_spans=MAX_SPAN)
        return end

    @property
    def place(self) -> Place:
        return Place(self.farm, self.barn, self.device, self.metric)

    @property
    def span(self) -> timedelta:
        return self.end - self.begin


class CloudTelemetryRange(api.Model):
    """Points by device, metric and time: readings if `bucket` is raw, else buckets.

    A point is `step_s` long: several buckets where single ones would be too many, and longer where
    an edge sends longer ones only. Where nothing came there is no point. Days are the farm's.
    """

    bucket: CloudBucketName
    step_s: float
    from_: Annotated[api.At, Field(alias="from")]
    to: api.At
    points: list[CloudReading | CloudBucket]


@dataclass(frozen=True, slots=True)
class Api(api.Routes):
    sign_ins: sign_in.SignIns
    archived: History = field(default_factory=lambda: History(None))

    @people.route("GET", RANGE, CloudTelemetryRange, responses=NO_COMPANY)
    async def range(
        self, request: Request, response: Response, query: Annotated[CloudRangeFilter, Query()]
    ) -> Any:
        """Readings of a time, never more than `limit` points."""
        response.headers.update(api.NO_STORE)
        person = await self.sign_ins.require(request)
        async with self.sign_ins.as_person(person, company_id=query.company) as connection:
            some = await series.known(connection, query.place, limit=query.limit + 1)
            if query.bucket == "raw":
                return await _raw(connection, query, some, self.archived)
            return await _buckets(connection, query, some, window=query.bucket)


async def _raw(
    connection: db.Connection, query: CloudRangeFilter, some: list[KnownSeries], archived: History
) -> dict[str, Any]:
    try:
        readings = await series.readings(
            connection,
            some,
            begin=query.begin,
            end=query.end,
            limit=query.limit + 1,
            archived=archived,
        )
    except HistoryUnavailableError as error:
        raise HttpError(503, str(error)) from None
    if len(readings) > query.limit:
        raise _too_many(query, f"there are more than {query.limit} readings")
    return _range(query, "raw", 0.0, readings)


async def _buckets(
    connection: db.Connection,
    query: CloudRangeFilter,
    some: list[KnownSeries],
    *,
    window: Window | None,
) -> dict[str, Any]:
    step = points.finest(query.span, series=len(some), budget=query.limit, window=window)
    if step is None:
        many = str(len(some)) if len(some) <= query.limit else f"more than {query.limit}"
        raise _too_many(query, f"{many} series have more than {query.limit} points")
    steps = [(known, points.at_least(step, known.aggregation_window)) for known in some]
    buckets = await series.buckets(connection, steps, begin=query.begin, end=query.end)
    return _range(query, step.window, step.length.total_seconds(), buckets)


def _too_many(query: CloudRangeFilter, why: str) -> HttpError:
    how = "name a device or a metric, or a shorter time"
    if query.bucket:
        how += ", or leave bucket out"
    return HttpError(400, f"{why}: {how}", details=[{"field": "limit", "reason": why}])


def _range(
    query: CloudRangeFilter, bucket: CloudBucketName, step_s: float, points: list[Any]
) -> dict[str, Any]:
    return {
        "bucket": bucket,
        "step_s": step_s,
        "from": query.begin,
        "to": query.end,
        "points": points,
    }
