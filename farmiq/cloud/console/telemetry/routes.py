"""The routes of telemetry: all sensors, one with its history, several beside each other."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import FastAPI, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.api import route
from farmiq.cloud import series
from farmiq.cloud.console import pages, shared_parts
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.shared_parts import Part
from farmiq.cloud.console.telemetry import queries, sensor
from farmiq.cloud.console.telemetry import view as readings
from farmiq.cloud.console.telemetry.sensor import Chart, Range, RangeName, Sensor
from farmiq.cloud.identity import sign_in
from farmiq.cloud.identity.store import SignIn
from farmiq.cloud.series import CloudBucket, KnownSeries
from farmiq.farm.points import Step
from farmiq.plumbing import db, sheet
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, metrics, words
from farmiq.ui.metrics import Catalogue

SENSOR = "/telemetry/{device_id}/{metric_type}"
COLUMNS = ("bucket_start_at", "bucket_end_at", "avg_value", "min_value", "max_value", "count")


class LatestReading(api.Model):
    event_id: UUID
    farm_id: str
    barn_id: str
    device_id: str
    metric_type: str
    metric_value: float | None
    unit: str
    occurred_at: api.At
    stored_at: api.At
    clock_suspect: bool
    reading_count: int
    aggregation_window: str | None
    age_s: float
    expected_interval_s: float
    state: str


class LatestReadings(api.Model):
    company: str
    timezone: str
    as_of: api.At
    summary: str
    problems: int
    readings: list[LatestReading]


class RangeFilter(api.Filter):
    """A range by its name, or from when to when."""

    range: RangeName | None = None
    begin: Annotated[api.Instant | None, Field(alias="from")] = None
    end: Annotated[api.Instant | None, Field(alias="to")] = None
    company: str | None = None

    def chosen(self, *, now: datetime) -> Range:
        try:
            return sensor.chosen(self.range, self.begin, self.end, now=now)
        except ValueError as error:
            raise HttpError(400, f"the address is not valid: {error}") from None


class CompareFilter(RangeFilter):
    """`s` names a sensor as device/metric."""

    s: Annotated[tuple[str, ...], Field(max_length=sensor.MAX_COMPARED)] = ()


@dataclass(frozen=True)
class TelemetryPages(api.Routes):
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/telemetry", self.list_page, "GET"),
            ("/readings", self.fragment, "GET"),
            ("/telemetry/compare", self.compare, "GET"),
            (f"{SENSOR}.csv", self.csv, "GET"),
            (f"{SENSOR}.parquet", self.parquet, "GET"),
            (SENSOR, self.sensor_page, "GET"),
            (f"{SENSOR}/now", self.sensor_now, "GET"),
        )
        super().add_to(app)

    def endpoint(self, handler: look.Endpoint) -> look.Endpoint:
        return look.with_error_pages(handler)

    async def list_page(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        view = await self._view(request, signed_in)
        return await self.pages.page("telemetry.html", signed_in, view)

    async def fragment(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)

        async def make() -> Part:
            view = await self._view(request, signed_in)
            return await shared_parts.part("readings.html", "readings", view)

        return await self.pages.shared_part(request, signed_in, make)

    @route(
        "GET",
        "/api/v1/telemetry/latest",
        LatestReadings,
        response_description="The readings of the person's company.",
        dependencies=[sign_in.SIGN_IN],
    )
    async def latest_json(self, request: Request, response: Response) -> Any:
        """The newest reading of every sensor."""
        view = await self._view(request, await self.pages.must_be_signed_in(request))
        response.headers.update(api.NO_STORE)
        return readings.as_json(view)

    async def sensor_page(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        view = await self._sensor(request, signed_in)
        return await self.pages.page("sensor.html", signed_in, view)

    async def sensor_now(self, request: Request) -> Response:
        """What a live update replaces: the sensor's newest reading and its chart."""
        signed_in = await self.pages.must_be_signed_in(request)

        async def make() -> Part:
            view = await self._sensor(request, signed_in)
            return await shared_parts.part("sensor_parts.html", "parts", view)

        return await self.pages.shared_part(request, signed_in, make)

    async def csv(self, request: Request) -> Response:
        """The points of a range as a file, more of them than fit a chart."""
        header, rows = await self._points(request)
        text = await asyncio.to_thread(sheet.lines, [header, *rows])
        return _file(request, text, "csv", media_type="text/csv")

    async def parquet(self, request: Request) -> Response:
        """The same as Parquet."""
        columns, rows = await self._points(request)
        data = await asyncio.to_thread(api.parquet_file, columns, rows, CloudBucket)
        return _file(request, data, "parquet", media_type=api.PARQUET)

    async def _points(self, request: Request) -> tuple[list[str], list[list[Any]]]:
        signed_in = await self.pages.must_be_signed_in(request)
        query = api.parse(RangeFilter, request)
        wanted = _sensor_of(request)
        async with self.pages.visit(request, signed_in) as (connection, _, now):
            known = await _known(connection, [wanted])
            shown = query.chosen(now=now)
            step = sensor.step(
                shown.span, window=known[0].aggregation_window, budget=sensor.FILE_BUDGET
            )
            buckets = await _buckets(connection, [(known[0], step)], shown)
        header = [*COLUMNS, "unit"]
        return header, [[getattr(bucket, name) for name in header] for bucket in buckets]

    async def compare(self, request: Request) -> Response:
        """Up to four sensors, each with a chart; all charts show the same time."""
        signed_in = await self.pages.must_be_signed_in(request)
        query = api.parse(CompareFilter, request, lists=("s",))
        wanted = _sensors(query.s)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            shown = query.chosen(now=now)
            charts = await _charts(connection, wanted, shown, company=company, now=now)
            all_sensors = await queries.sensors(connection)
            catalogue = Catalogue(await queries.catalogue(connection))
            names = await queries.barn_names(connection)
        view = sensor.CompareView(
            company=company,
            zone=words.zone_name(words.zone(company.timezone), now),
            now=now,
            range=shown,
            charts=tuple(charts),
            choices=_choices(all_sensors, catalogue, names, without=wanted),
        )
        return await self.pages.page("compare.html", signed_in, view)

    async def _view(self, request: Request, signed_in: SignIn) -> readings.View:
        async with self.pages.as_person(request, signed_in) as connection:
            company = await self.pages.company(connection, signed_in)
            rows = await queries.latest(connection)
            catalogue = Catalogue(await queries.catalogue(connection))
            names = await queries.barn_names(connection)
        now = datetime.now(UTC)
        # In a thread, like rendering: a large farm must not delay other requests.
        return await asyncio.to_thread(
            readings.view, company, rows, now=now, catalogue=catalogue, names=names
        )

    async def _sensor(self, request: Request, signed_in: SignIn) -> sensor.SensorView:
        query = api.parse(RangeFilter, request)
        wanted = _sensor_of(request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            shown = query.chosen(now=now)
            (chart,) = await _charts(connection, [wanted], shown, company=company, now=now)
        return sensor.SensorView(
            company=company,
            zone=words.zone_name(words.zone(company.timezone), now),
            now=now,
            range=shown,
            chart=chart,
        )


async def _known(connection: db.Connection, wanted: Sequence[Sensor]) -> list[KnownSeries]:
    """The series of these sensors. Raises HttpError 404 if the company does not have one."""
    known = []
    for wanted_sensor in wanted:
        place = series.Place(None, None, wanted_sensor.device_id, wanted_sensor.metric_type)
        known += await series.known(connection, place, limit=1)
    if len(known) < len(wanted):
        raise HttpError(404, "there is no such sensor")
    return known


async def _buckets(
    connection: db.Connection, some: Sequence[tuple[KnownSeries, Step]], shown: Range
) -> list[CloudBucket]:
    return await series.buckets(connection, some, begin=shown.begin, end=shown.end)


async def _charts(
    connection: db.Connection,
    wanted: Sequence[Sensor],
    shown: Range,
    *,
    company: Company,
    now: datetime,
) -> list[Chart]:
    """A chart of each sensor, in two statements for all of them and one of alerts for each."""
    if not wanted:
        return []
    known = await _known(connection, wanted)
    latest = await queries.latest(connection, only=wanted)
    catalogue = Catalogue(await queries.catalogue(connection))
    names = await queries.barn_names(connection)
    view = readings.view(company, latest, now=now, catalogue=catalogue, names=names)
    rows = {
        (row.reading.device_id, row.reading.metric_type): (row, barn)
        for barn in view.barns
        for row in barn.rows
    }
    steps = [sensor.step(shown.span, window=row.aggregation_window) for row in known]
    buckets = await _buckets(connection, list(zip(known, steps, strict=True)), shown)
    charts = []
    for wanted_sensor, step in zip(wanted, steps, strict=True):
        row, barn = rows[wanted_sensor.device_id, wanted_sensor.metric_type]
        alerts = await queries.alerts(connection, wanted_sensor, begin=shown.begin, end=shown.end)
        dots = sensor.dots(
            [
                b
                for b in buckets
                if (b.device_id, b.metric_type)
                == (wanted_sensor.device_id, wanted_sensor.metric_type)
            ],
            shown=shown,
            step_s=step.length.total_seconds(),
            interval_s=row.interval_s,
            now=now,
        )
        charts.append(
            Chart(
                sensor=wanted_sensor,
                row=row,
                barn=barn,
                device_label=metrics.device_label(wanted_sensor.device_id, barn.barn_id),
                dots=tuple(dots),
                step=sensor.step_words(step),
                step_s=step.length.total_seconds(),
                alerts=tuple(alerts),
            )
        )
    return charts


def _file(request: Request, body: str | bytes, ending: str, *, media_type: str) -> Response:
    wanted = _sensor_of(request)
    name = f"{wanted.device_id}_{wanted.metric_type}.{ending}"
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(body, media_type=media_type, headers={**look.HEADERS, **disposition})


def _sensor_of(request: Request) -> Sensor:
    return Sensor(
        request.path_params["device_id"].replace("\x00", ""),
        request.path_params["metric_type"].replace("\x00", ""),
    )


def _sensors(texts: Sequence[str]) -> list[Sensor]:
    """Of a query. Raises HttpError 400."""
    parsed = [sensor.parse_sensor(text.replace("\x00", "")) for text in texts if text]
    if None in parsed:
        raise HttpError(400, "the address is not valid: s names a sensor as device/metric")
    return list(dict.fromkeys(named for named in parsed if named is not None))


def _choices(
    all_sensors: Sequence[tuple[str, str, str, str]],
    catalogue: Catalogue,
    names: dict[tuple[str, str], tuple[str, str]],
    *,
    without: Sequence[Sensor],
) -> tuple[tuple[str, str], ...]:
    choices = []
    for farm_id, barn_id, device_id, metric_type in all_sensors:
        wanted_sensor = Sensor(device_id, metric_type)
        if wanted_sensor not in without:
            barn = names.get((farm_id, barn_id), (barn_id, ""))[0]
            label = metrics.device_label(device_id, barn_id)
            choices.append(
                (wanted_sensor.text, f"{barn} · {label} · {catalogue.of(metric_type).label}")
            )
    return tuple(choices)
