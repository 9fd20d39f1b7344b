"""Routes of what is registered: companies to look at, programs, sites, cameras."""

from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from fastapi import FastAPI, Request, Response

from farmiq.cloud.camera import mac
from farmiq.cloud.camera.accounts import answers, listing, orders, store
from farmiq.cloud.camera.accounts.kinds import CAMERAS, PROGRAMS, SITES, Kind
from farmiq.cloud.camera.accounts.people import Caller, People, again

T = TypeVar("T", bound=msgspec.Struct)

# Who may; each may also what those before it may.
PLANS, CAMERA_WORK = "admin", "technician"


@dataclass
class Registering:
    people: People

    def add_to(self, app: FastAPI, root: str) -> None:
        programs, sites, devices = (f"{root}/{name}" for name in ("programs", "sites", "devices"))
        for path, endpoint, method in (
            (f"{root}/companies", self.companies, "GET"),
            (programs, self.programs, "GET"),
            (programs, self.add_program, "POST"),
            (f"{programs}/{{program_id}}", self.program, "GET"),
            (f"{programs}/{{program_id}}", self.change_program, "PATCH"),
            (sites, self.sites, "GET"),
            (sites, self.add_site, "POST"),
            (f"{sites}/{{site_id}}", self.site, "GET"),
            (f"{sites}/{{site_id}}", self.change_site, "PATCH"),
            (devices, self.cameras, "GET"),
            (devices, self.add_camera, "POST"),
            (f"{devices}/{{device_id}}", self.camera, "GET"),
            (f"{devices}/{{device_id}}", self.change_camera, "PATCH"),
            (f"{devices}/{{device_id}}/retire", self.retire, "POST"),
        ):
            app.add_route(path, again(endpoint), methods=[method])

    async def companies(self, request: Request) -> Response:
        async with self.people.caller(request, listing.company(request)) as caller:
            found = await store.companies(caller.connection)
        return answers.answer({"companies": found})

    async def programs(self, request: Request) -> Response:
        return await listing.ls(self.people, request, PROGRAMS)

    async def program(self, request: Request) -> Response:
        return await listing.show(self.people, request, PROGRAMS)

    async def sites(self, request: Request) -> Response:
        return await listing.ls(self.people, request, SITES)

    async def site(self, request: Request) -> Response:
        return await listing.show(self.people, request, SITES)

    async def cameras(self, request: Request) -> Response:
        return await listing.ls(self.people, request, CAMERAS)

    async def camera(self, request: Request) -> Response:
        return await listing.show(self.people, request, CAMERAS)

    async def add_program(self, request: Request) -> Response:
        return await self._add(request, PROGRAMS, orders.NewProgram, least=PLANS)

    async def add_site(self, request: Request) -> Response:
        return await self._add(request, SITES, orders.NewSite, least=PLANS)

    async def add_camera(self, request: Request) -> Response:
        return await self._add(request, CAMERAS, orders.NewCamera, least=CAMERA_WORK)

    async def change_program(self, request: Request) -> Response:
        return await self._change(request, PROGRAMS, orders.ProgramChange, least=PLANS)

    async def change_site(self, request: Request) -> Response:
        return await self._change(request, SITES, orders.SiteChange, least=PLANS)

    async def change_camera(self, request: Request) -> Response:
        return await self._change(request, CAMERAS, orders.CameraChange, least=CAMERA_WORK)

    async def retire(self, request: Request) -> Response:
        """Its wakes stay, its MAC address is free; done twice it is done."""
        return await self._change(
            request, CAMERAS, orders.Deed, least=CAMERA_WORK, more={"is_active": False}
        )

    async def _add(self, request: Request, kind: Kind, body: type[T], *, least: str) -> Response:
        asked, raw = listing.company(request), await answers.raw(request)
        async with self.people.caller(request, asked, least=least) as caller:
            values = await _checked(caller, orders.said(answers.decoded(raw, body)))
            service = await caller.become_service()
            key = await store.add(service, kind, caller.company_id, values)
            row = await listing.there(caller, kind, key)
        return answers.answer(row, status=201)

    async def _change(
        self,
        request: Request,
        kind: Kind,
        body: type[T],
        *,
        least: str,
        more: dict[str, Any] | None = None,
    ) -> Response:
        asked, raw = listing.company(request), await answers.raw(request)
        async with self.people.caller(request, asked, least=least) as caller:
            key = answers.path_id(request, kind.key)
            values = orders.said(answers.decoded(raw, body)) | (more or {})
            await listing.there(caller, kind, key)
            values = await _checked(caller, values)
            if kind is CAMERAS and values.get("is_active") is False:
                # Whoever uses it next has to be heard first, also if that is this company again.
                values["proven_at"] = None
            service = await caller.become_service()
            await store.change(service, kind, caller.company_id, key, values)
            row = await listing.there(caller, kind, key)
        return answers.answer(row)


async def _checked(caller: Caller, values: dict[str, Any]) -> dict[str, Any]:
    """As the person: what the order refers to is there, and is what it says.

    Raises HttpError 400 with all that is wrong.
    """
    wrong: list[tuple[str, str]] = []
    for name, kind in (("program_id", PROGRAMS), ("site_id", SITES)):
        other: UUID | None = values.get(name)
        if other is not None and await store.one(caller.connection, kind, other) is None:
            wrong.append((name, f"there is no such {kind.one}"))
    if cron := values.get("wake_schedule_cron"):
        problem = await store.cron_problem(caller.connection, cron)
        wrong += [("wake_schedule_cron", problem)] if problem else []
    if "mac" in values:
        try:
            values = {**values, "mac": mac.normal(values["mac"])}
        except ValueError as error:
            wrong.append(("mac", str(error)))
    if wrong:
        raise answers.bad(wrong)
    return values
