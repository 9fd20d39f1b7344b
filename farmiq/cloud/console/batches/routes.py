"""The routes about batches: the list, one in full, and their fragments."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from typing import Annotated
from uuid import UUID

from fastapi import FastAPI, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.cloud.console import pages
from farmiq.cloud.console.batches import calendar, detail, queries
from farmiq.cloud.console.batches import view as batches
from farmiq.cloud.console.batches.detail import Detail
from farmiq.cloud.console.batches.view import Batch, Outlook, View
from farmiq.cloud.figures import forecast as forecasts
from farmiq.cloud.figures import queries as figures
from farmiq.cloud.figures.forecast import Forecast, Weights
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words

MAX_PAGES = 1000


class BatchesFilter(api.Filter):
    """`page` is a page of closed batches."""

    page: Annotated[int, Field(ge=1, le=MAX_PAGES)] = 1
    company: str | None = None


class BatchFilter(api.Filter):
    """`day` is the day of the table of figures, `entered` an event that was just posted."""

    day: api.Day | None = None
    entered: UUID | None = None
    company: str | None = None


@dataclass(frozen=True)
class BatchPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/batches", self.batches, "GET"),
            ("/batches/rows", self.rows, "GET"),
            ("/batches/{batch_id}", self.batch, "GET"),
            ("/batches/{batch_id}/parts", self.parts, "GET"),
        )

    async def batches(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self.pages.page(
            "batches.html", signed_in, await self._list(request, signed_in)
        )

    async def rows(self, request: Request) -> Response:
        view = await self._list(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "batch_list.html", "batches", view)

    async def batch(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self.pages.page(
            "batch.html", signed_in, await self._detail(request, signed_in)
        )

    async def parts(self, request: Request) -> Response:
        view = await self._detail(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "batch_detail.html", "parts", view)

    async def _list(self, request: Request, signed_in: SignIn) -> View:
        query = api.parse(BatchesFilter, request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            batch_ids, closed_count = await queries.shown(connection, page=query.page)
            listed = await queries.batches(connection, company.tenant_id, batch_ids)
            running = [batch.batch_id for batch in listed if batch.status == "running"]
            known = await forecasts.weights(connection, company.tenant_id, running)
            has_barns = bool(listed) or await queries.has_barns(connection)
        return batches.view(
            company,
            # In a thread: a curve is fitted for each batch.
            await asyncio.to_thread(_with_outlooks, listed, known),
            closed_count=closed_count,
            page_number=query.page,
            has_barns=has_barns,
            now=now,
        )

    async def _detail(self, request: Request, signed_in: SignIn) -> Detail:
        query = api.parse(BatchFilter, request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            batch = await find(connection, company.tenant_id, request.path_params["batch_id"])
            tenant_id, zone = company.tenant_id, words.zone(batch.timezone)
            last = min(batch.today, batch.closed_on or batch.today)
            since = max(batch.placed_on, last - timedelta(days=detail.MAX_DAYS))
            shown, computed_at = await queries.figures(
                connection, tenant_id, batch.batch_id, since=since
            )
            standard = await figures.standard(
                connection, tenant_id, species=batch.species, breed=batch.breed, sex=batch.sex
            )
            if not batch.is_age_known:
                standard = []
            known = await forecasts.weights(connection, tenant_id, [batch.batch_id])
            begin = datetime.combine(batch.placed_on, time(), zone).astimezone(UTC)
            end = datetime.combine(last + timedelta(days=1), time(), zone).astimezone(UTC)
            span = {"begin": begin, "end": end}
            records = await queries.records(connection, tenant_id, batch, **span)
            lots = await queries.lots(connection, tenant_id, batch, **span)
            alerts = await queries.alerts(connection, tenant_id, batch, **span)
            losses = await queries.losses(connection, tenant_id, batch.batch_id)
            entered = await queries.entered(connection, query.entered) if query.entered else None
        batch = await asyncio.to_thread(_with_outlook, batch, known.get(batch.batch_id))
        return detail.detail(
            company,
            batch,
            shown,
            standard,
            calendar=calendar.calendar(
                batch, records=records, lots=lots, alerts=alerts, losses=losses, zone=zone
            ),
            day=query.day,
            computed_at=computed_at,
            entered=entered,
            now=now,
        )


async def find(connection: db.Connection, tenant_id: str, batch_id: str) -> Batch:
    """Raises HttpError 404, also for a batch of another company."""
    batches_of_id = (
        await queries.batches(connection, tenant_id, [batch_id]) if "\0" not in batch_id else []
    )
    if not batches_of_id:
        raise HttpError(404, "there is no such batch")
    return batches_of_id[0]


def _with_outlooks(listed: list[Batch], known: Mapping[str, Weights]) -> list[Batch]:
    return [
        replace(batch, outlook=outlook(forecasts.describe(known[batch.batch_id])))
        if batch.batch_id in known
        else batch
        for batch in listed
    ]


def _with_outlook(batch: Batch, known: Weights | None) -> Batch:
    """With the days of the forecast too, for the chart."""
    if known is None or batch.status != "running":
        return batch
    foreseen = replace(batch, outlook=outlook(forecasts.describe(known)))
    path = [
        (on, estimate.kg, estimate.low_kg, estimate.high_kg)
        for on, estimate in forecasts.path(known, until=detail.until(foreseen))
    ]
    return replace(foreseen, outlook=replace(foreseen.outlook, path=path))


def outlook(forecast: Forecast) -> Outlook:
    target = forecast.target
    if target is None:
        return Outlook(reason=forecast.reason)
    return Outlook(
        target_kg=target.target_kg,
        reached_on=target.reached_on,
        earliest_on=target.earliest_on,
        latest_on=target.latest_on,
        reason=target.reason,
    )
