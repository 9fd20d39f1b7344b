"""The routes of Today: the page and its live part."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fastapi import FastAPI, Request, Response

from farmiq.cloud.console import pages, shared_parts
from farmiq.cloud.console.batches import queries as batch_queries
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.shared_parts import Part
from farmiq.cloud.console.sites import queries as site_queries
from farmiq.cloud.console.sites import strips
from farmiq.cloud.console.sites import view as site_list
from farmiq.cloud.console.sites.strips import Camera, Wake
from farmiq.cloud.console.telemetry import queries as telemetry_queries
from farmiq.cloud.console.telemetry import view as telemetry
from farmiq.cloud.console.today import first_steps, queries
from farmiq.cloud.console.today import view as today
from farmiq.cloud.console.today.reasons import Known
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db
from farmiq.ui import look
from farmiq.ui.metrics import Catalogue


@dataclass(frozen=True)
class TodayPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(app, ("/", self.page, "GET"), ("/today", self.fragment, "GET"))

    async def page(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        view = await self._view(request, signed_in)
        return await self.pages.page("today.html", signed_in, view)

    async def fragment(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)

        async def make() -> Part:
            view = await self._view(request, signed_in)
            return await shared_parts.part("today_parts.html", "today", view)

        return await self.pages.shared_part(request, signed_in, make)

    async def _view(self, request: Request, signed_in: SignIn) -> today.View:
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            latest = await telemetry_queries.latest(connection, history=telemetry.INTERVAL_READINGS)
            catalogue = Catalogue(await telemetry_queries.catalogue(connection))
            registered = await queries.barns(connection)
            edges = await queries.edges(connection)
            episodes = await queries.episodes(connection)
            arrived = await queries.arrived(connection)
            in_barns = [barn.batch_id for barn in registered if barn.batch_id]
            batches = await batch_queries.batches(connection, company.tenant_id, in_barns)
            cameras = await _sites_today(connection)
            steps = []
            if not latest and not cameras.sites:
                progress = await queries.progress(connection)
                if not progress.has_reading:
                    steps = first_steps.steps(progress, company.tenant_id, now=now)

        def made() -> today.View:
            site_view = cameras.view(company, now=now)
            names = {(e.farm_id, e.barn_id): (e.name, e.farm_name) for e in registered}
            known = Known(
                now=now,
                readings=telemetry.view(company, latest, now=now, catalogue=catalogue, names=names),
                sites=site_view.rows,
                sites_since=cameras.problems_since(now=now),
                episodes=episodes,
                edges=edges,
                barn_names={place: name for place, (name, _) in names.items()},
                batches=batches,
            )
            return today.view(
                company,
                known,
                registered=registered,
                arrived=arrived,
                steps=steps,
                refresh_at=site_view.refresh_at,
            )

        # In a thread, like rendering: a large farm must not delay other requests.
        return await asyncio.to_thread(made)


@dataclass(frozen=True, slots=True, kw_only=True)
class SitesToday:
    """What the page of sites is made of."""

    sites: Sequence[site_list.Site]
    days: Sequence[site_list.Day]
    wakes: Sequence[Wake]
    cameras: Sequence[Camera]

    def view(self, company: Company, *, now: datetime) -> site_list.View:
        return site_list.view(
            company, self.sites, days=self.days, wakes=self.wakes, cameras=self.cameras, now=now
        )

    def problems_since(self, *, now: datetime) -> Mapping[UUID, datetime]:
        """The first wake of today with a problem, by site."""
        site_of = {day.session_id: day.site_id for day in self.days}
        known = {camera.device_id: camera for camera in self.cameras}
        since: dict[UUID, datetime] = {}
        for wake in self.wakes:
            if strips.state(wake, known.get(wake.device_id), now=now) in strips.PROBLEMS:
                site_id = site_of[wake.session_id]
                since[site_id] = min(wake.at, since.get(site_id, wake.at))
        return since


async def _sites_today(connection: db.Connection) -> SitesToday:
    all_sites = await site_queries.sites(connection)
    if not all_sites:
        return SitesToday(sites=[], days=[], wakes=[], cameras=[])
    days = await site_queries.last_days(connection)
    today_of = {site.site_id: site.today for site in all_sites}
    current = [day.session_id for day in days if today_of.get(day.site_id) == day.session_date]
    wakes = await site_queries.wakes(connection, current)
    wanted = list({wake.device_id for wake in wakes})
    stays = await site_queries.stays(connection, wanted)
    site_of = {day.session_id: day.site_id for day in days}
    return SitesToday(
        sites=all_sites,
        days=days,
        wakes=strips.mark_required(wakes, stays, site_of=site_of),
        cameras=await site_queries.cameras(connection, None, wanted),
    )
