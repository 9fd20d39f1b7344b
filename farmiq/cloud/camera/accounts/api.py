"""The routes of cameras for people and programs, under /api/v1/camera.

A handler reads the body before it opens a transaction, so a slow sender does not hold one. It
decodes the body inside, when the caller and their role are known.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from uuid import UUID

import msgspec
from fastapi import Depends, Query, Request, Response

from farmiq import api
from farmiq.api import BodyOf, Handler, JsonBody, PathId
from farmiq.cloud import camera_images, completeness, wake_figures
from farmiq.cloud.camera import command_queue, mac, registry
from farmiq.cloud.camera.accounts import kinds, models, store
from farmiq.cloud.camera.accounts.kinds import (
    ALERTS,
    CAMERAS,
    CHANGES,
    COMMANDS,
    IMAGES,
    PROGRAMS,
    QUARANTINE,
    SESSIONS,
    SITES,
    WAKES,
    Kind,
)
from farmiq.cloud.camera.accounts.store import Row
from farmiq.cloud.identity import people
from farmiq.cloud.identity.people import AVisit, Caller, PeopleRoutes, Visit
from farmiq.plumbing import http
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.images import pictures
from farmiq.plumbing.images.gallery import Gallery

ROOT = "/api/v1/camera"
MAX_BYTES = 16 * 1024
# Roles; each may also do what the ones after it may.
PLANS, CAMERA_WORK, CARE = "admin", "technician", "operator"

T = TypeVar("T", bound=msgspec.Struct)


def _body(kind: type[T]) -> Any:
    # A form of another site cannot be sent as JSON without the browser asking us first.
    return Depends(BodyOf(kind, what="a body", max_bytes=MAX_BYTES))


CameraChange = Annotated[JsonBody[models.CameraChange], _body(models.CameraChange)]
Empty = Annotated[JsonBody[models.Empty], _body(models.Empty)]
NewCamera = Annotated[JsonBody[models.NewCamera], _body(models.NewCamera)]
NewCommand = Annotated[JsonBody[models.NewCommand], _body(models.NewCommand)]
NewProgram = Annotated[JsonBody[models.NewProgram], _body(models.NewProgram)]
NewSite = Annotated[JsonBody[models.NewSite], _body(models.NewSite)]
ProgramChange = Annotated[JsonBody[models.ProgramChange], _body(models.ProgramChange)]
ScheduleRequest = Annotated[JsonBody[models.ScheduleRequest], _body(models.ScheduleRequest)]
SiteChange = Annotated[JsonBody[models.SiteChange], _body(models.SiteChange)]
# Messages by unique constraint.
NOT_UNIQUE = {
    "pilot_programs_name_idx": "a program of this company has that name",
    "sites_name_idx": "a site of this company has that name",
    "devices_name_idx": "a camera of this company has that name",
    "devices_company_mac_idx": "a camera of this company that is not retired has that MAC address",
}
WRITING = {
    **people.FORBIDDEN,
    409: "CONFLICT: a name or an address is taken, or it is too late.",
}


def _route(
    method: str,
    path: str,
    model: Any,
    *,
    responses: Mapping[int, str] | None = None,
    **options: Any,
) -> Callable[[Handler], Handler]:
    """A route for people who are signed in."""
    errors = {404: people.MISSING, **(WRITING if method != "GET" else {}), **(responses or {})}
    return people.route(method, f"{ROOT}/{path}", model, responses=errors, **options)


@dataclass
class Api(PeopleRoutes):
    not_unique = NOT_UNIQUE

    gallery: Gallery

    # --- programs, sites, cameras

    @_route("GET", "companies", models.CameraCompanies)
    async def companies(self, visit: AVisit) -> Any:
        """The companies that the person may choose."""
        async with self.people.caller(*visit) as caller:
            return {"companies": await store.companies(caller.connection)}

    @_route("GET", "programs", models.CameraPrograms)
    async def programs(
        self, request: Request, query: Annotated[kinds.ProgramFilter, Query()]
    ) -> Any:
        """Programs, newest first."""
        return await self._ls(request, PROGRAMS, query)

    @_route("GET", "programs/{program_id}", models.CameraProgram)
    async def program(self, visit: AVisit, program_id: PathId) -> Any:
        """One program."""
        return await self._show(visit, PROGRAMS, program_id)

    @_route("GET", "sites", models.CameraSites)
    async def sites(self, request: Request, query: Annotated[kinds.SiteFilter, Query()]) -> Any:
        """Sites, newest first."""
        return await self._ls(request, SITES, query)

    @_route("GET", "sites/{site_id}", models.CameraSite)
    async def site(self, visit: AVisit, site_id: PathId) -> Any:
        """One site."""
        return await self._show(visit, SITES, site_id)

    @_route("GET", "devices", models.Cameras)
    async def cameras(self, request: Request, query: Annotated[kinds.DeviceFilter, Query()]) -> Any:
        """Cameras, newest first."""
        return await self._ls(request, CAMERAS, query)

    @_route("GET", "devices/{device_id}", models.Camera)
    async def camera(self, visit: AVisit, device_id: PathId) -> Any:
        """One camera."""
        return await self._show(visit, CAMERAS, device_id)

    @_route("POST", "programs", models.CameraProgram, status_code=201)
    async def add_program(self, visit: AVisit, body: NewProgram) -> Any:
        """Add a program (admins)."""
        return await self._add(visit, PROGRAMS, body, least=PLANS)

    @_route("POST", "sites", models.CameraSite, status_code=201)
    async def add_site(self, visit: AVisit, body: NewSite) -> Any:
        """Add a site (admins)."""
        return await self._add(visit, SITES, body, least=PLANS)

    @_route("POST", "devices", models.Camera, status_code=201)
    async def add_camera(self, visit: AVisit, body: NewCamera) -> Any:
        """Add a camera (technicians)."""
        return await self._add(visit, CAMERAS, body, least=CAMERA_WORK)

    @_route("PATCH", "programs/{program_id}", models.CameraProgram)
    async def change_program(self, visit: AVisit, program_id: PathId, body: ProgramChange) -> Any:
        """Change a program (admins)."""
        return await self._change(visit, PROGRAMS, program_id, body, least=PLANS)

    @_route("PATCH", "sites/{site_id}", models.CameraSite)
    async def change_site(self, visit: AVisit, site_id: PathId, body: SiteChange) -> Any:
        """Change a site (admins)."""
        return await self._change(visit, SITES, site_id, body, least=PLANS)

    @_route("PATCH", "devices/{device_id}", models.Camera)
    async def change_camera(self, visit: AVisit, device_id: PathId, body: CameraChange) -> Any:
        """Change a camera (technicians)."""
        return await self._change(visit, CAMERAS, device_id, body, least=CAMERA_WORK)

    @_route("POST", "devices/{device_id}/retire", models.Camera)
    async def retire(self, visit: AVisit, device_id: PathId, body: Empty) -> Any:
        """Retire a camera (technicians).

        Its wakes stay, its MAC address is free; done twice it is done.
        """
        more = {"is_active": False}
        return await self._change(visit, CAMERAS, device_id, body, least=CAMERA_WORK, more=more)

    async def _ls(self, request: Request, kind: Kind, query: kinds.CameraFilter) -> Row:
        async with self.people.caller(request, query.company) as caller:
            page = await store.page(caller.connection, kind, query)
        rows, next_cursor = api.cut(page, query.limit, at=kind.at, key=kind.key)
        return {kind.plural: [_shown(kind, row) for row in rows], "next_cursor": next_cursor}

    async def _show(self, visit: Visit, kind: Kind, key: UUID) -> Mapping[str, Any]:
        async with self.people.caller(*visit) as caller:
            return _shown(kind, await _find(caller, kind, key))

    async def _add(self, visit: Visit, kind: Kind, body: JsonBody[T], *, least: str) -> Row:
        raw = await body.raw()
        async with self.people.caller(*visit, least=least) as caller:
            values = await _checked(caller, models.given(body.decode(raw)))
            service = await caller.become_service()
            key = await store.add(service, kind, caller.company_id, values)
            row = await _find(caller, kind, key)
            await store.audit(caller, "add", kind, row, values)
            return row

    async def _change(
        self,
        visit: Visit,
        kind: Kind,
        key: UUID,
        body: JsonBody[T],
        *,
        least: str,
        more: dict[str, Any] | None = None,
    ) -> Row:
        raw = await body.raw()
        async with self.people.caller(*visit, least=least) as caller:
            values = models.given(body.decode(raw)) | (more or {})
            await _find(caller, kind, key)
            values = await _checked(caller, values)
            if kind is CAMERAS and values.get("is_active") is False:
                # The next registration has to be proven, also one of this company.
                values["proven_at"] = None
            service = await caller.become_service()
            await store.change(service, kind, caller.company_id, key, values)
            row = await _find(caller, kind, key)
            await store.audit(caller, "change", kind, row, values)
            return row

    # --- schedule changes: preview, request, cancel. They start at the site's midnight.

    @_route("GET", "devices/{device_id}/schedule-changes", models.ScheduleChanges)
    async def changes(
        self,
        request: Request,
        device_id: PathId,
        query: Annotated[kinds.ChangeFilter, Query()],
    ) -> Any:
        """A camera's schedule changes, newest first."""
        async with self.people.caller(request, query.company) as caller:
            await _find(caller, CAMERAS, device_id)
            page = await store.page(caller.connection, CHANGES, query, {"device": device_id})
        rows, next_cursor = api.cut(page, query.limit, at=CHANGES.at, key=CHANGES.key)
        return {"changes": rows, "next_cursor": next_cursor}

    @_route(
        "POST",
        "devices/{device_id}/schedule-changes/preview",
        models.SchedulePreview,
        response_model_exclude_unset=True,
    )
    async def preview(self, visit: AVisit, device_id: PathId, body: ScheduleRequest) -> Any:
        """When another schedule would take effect; nothing is stored."""
        raw = await body.raw()
        async with self.people.caller(*visit) as caller:
            cron = await _schedule(caller, device_id, body.decode(raw))
            return await store.preview(caller.connection, device_id, cron)

    @_route(
        "POST", "devices/{device_id}/schedule-changes", models.ScheduleRequested, status_code=201
    )
    async def request_change(self, visit: AVisit, device_id: PathId, body: ScheduleRequest) -> Any:
        """Ask for another schedule from the site's next midnight (technicians)."""
        raw = await body.raw()
        async with self.people.caller(*visit, least=CAMERA_WORK) as caller:
            cron = await _schedule(caller, device_id, body.decode(raw))
            change = await store.request_change(caller.connection, device_id, cron)
            row = await _find(caller, CHANGES, UUID(change["change_id"]))
            return {**row, "text": change["text"]}

    @_route("POST", "schedule-changes/{change_id}/cancel", models.ScheduleChange)
    async def cancel_change(self, visit: AVisit, change_id: PathId, body: Empty) -> Any:
        """Take back a change that was not applied yet (technicians)."""
        raw = await body.raw()
        async with self.people.caller(*visit, least=CAMERA_WORK) as caller:
            body.decode(raw)
            await _find(caller, CHANGES, change_id)
            await store.cancel_change(caller.connection, change_id)
            return await _find(caller, CHANGES, change_id)

    # --- days of sites, wakes, images, alerts, and their figures

    @_route("GET", "sessions", models.CameraSessions)
    async def sessions(
        self, request: Request, query: Annotated[kinds.SessionFilter, Query()]
    ) -> Any:
        """Days of sites, newest first."""
        return await self._ls(request, SESSIONS, query)

    @_route("GET", "sessions/{session_id}", models.CameraSessionInFull)
    async def session(self, visit: AVisit, session_id: PathId) -> Any:
        """One day, with each camera's share.

        With each camera's share, and both as a person reads them.
        """
        async with self.people.caller(*visit) as caller:
            row = await _find(caller, SESSIONS, session_id)
            shares = await wake_figures.of_session(caller.connection, row["session_id"])
        text = completeness.session(
            row["session_date"],
            expected=row["expected_wake_count"],
            completed=row["completed_wake_count"],
            failed=row["failed_wake_count"],
            extra=row["extra_wake_count"],
        )
        devices = [_share(share) for share in shares]
        return {**_shown(SESSIONS, row), "text": text, "devices": devices}

    @_route("GET", "wakes", models.CameraWakes)
    async def wakes(self, request: Request, query: Annotated[kinds.WakeFilter, Query()]) -> Any:
        """Wakes, newest first."""
        return await self._ls(request, WAKES, query)

    @_route("GET", "wakes/{payload_id}", models.CameraWakeInFull)
    async def wake(self, visit: AVisit, payload_id: PathId) -> Any:
        """One wake, with all that the camera sent.

        What the camera sent goes out as it stands: its numbers may be beyond Python's.
        """
        async with self.people.caller(*visit) as caller:
            row = await _find(caller, WAKES, payload_id)
            telemetry = await store.telemetry(caller.connection, row["payload_id"])
        fields = models.CameraWake(**row).model_dump(mode="json")
        content = msgspec.json.encode({**fields, "telemetry_data": telemetry})
        return Response(content, media_type=http.JSON)

    @_route("GET", "images", models.CameraImages)
    async def images(self, request: Request, query: Annotated[kinds.ImageFilter, Query()]) -> Any:
        """Images of wakes, newest first."""
        return await self._ls(request, IMAGES, query)

    @_route("GET", "images/{image_id}", models.CameraImage)
    async def image(self, visit: AVisit, image_id: PathId) -> Any:
        """One image's account."""
        return await self._show(visit, IMAGES, image_id)

    @people.route("GET", f"{ROOT}/images/{{image_id}}/content", **Gallery.document())
    async def content(self, visit: AVisit, image_id: PathId) -> Response:
        """One image's bytes.

        The JPEG, without what a camera wrote of its place.
        """
        async with self.people.caller(*visit) as caller:
            image = await camera_images.stored(caller.connection, image_id)
        return await self.gallery.whole(visit.request, image.key, image.tag, pictures.JPEG)

    @_route("POST", "images/{image_id}/resend", models.CameraImage)
    async def resend(self, visit: AVisit, image_id: PathId, body: Empty) -> Any:
        """Ask its camera for an image again (operators).

        Asks for this very image again; of one that is complete nothing changes (C-79).
        """
        raw = await body.raw()
        async with self.people.caller(*visit, least=CARE) as caller:
            body.decode(raw)
            await _find(caller, IMAGES, image_id)
            await store.resend(caller.connection, image_id)
            return await _find(caller, IMAGES, image_id)

    @_route("GET", "alerts", models.CameraAlerts)
    async def alerts(self, request: Request, query: Annotated[kinds.AlertFilter, Query()]) -> Any:
        """What somebody should look at, newest first."""
        return await self._ls(request, ALERTS, query)

    @_route("POST", "alerts/{alert_id}/resolve", models.CameraAlert)
    async def resolve(self, visit: AVisit, alert_id: PathId, body: Empty) -> Any:
        """An alert was dealt with (operators)."""
        raw = await body.raw()
        async with self.people.caller(*visit, least=CARE) as caller:
            body.decode(raw)
            await _find(caller, ALERTS, alert_id)
            service = await caller.become_service()
            if await store.resolve(service, caller.company_id, alert_id):
                await store.audit(caller, "resolve", ALERTS, {"alert_id": alert_id}, {})
            return await _find(caller, ALERTS, alert_id)

    @_route("GET", "rollups/{level}", models.Rollup)
    async def rollup(
        self,
        request: Request,
        level: kinds.PathLevel,
        query: Annotated[kinds.FiguresFilter, Query()],
    ) -> Any:
        """Figures at one of six levels, in days of the sites; 30 days if none are given."""
        if query.device is not None and level not in kinds.OF_A_CAMERA:
            raise api.invalid(("device", f"is not known at the level {level}"[:64]))
        async with self.people.caller(request, query.company) as caller:
            if level not in kinds.LEVELS:
                levels = ", ".join(kinds.LEVELS)
                raise HttpError(404, f"there is no such level; there are: {levels}")
            page = await wake_figures.page(caller.connection, level, query.figures())
            totals = await wake_figures.totals(caller.connection, query.figures())
        rows, next_cursor = api.cut(page, query.limit, at="at", key="id")
        return {
            "level": level,
            **query.span(),
            "totals": _figures(totals),
            "rows": [
                {name: row[name] for name in ("id", "name", "day")} | _figures(row) for row in rows
            ],
            "next_cursor": next_cursor,
        }

    @_route("GET", "devices/{device_id}/trend", models.DeviceTrend)
    async def trend(
        self, request: Request, device_id: PathId, query: Annotated[kinds.DaysFilter, Query()]
    ) -> Any:
        """A camera's temperature by day."""
        async with self.people.caller(request, query.company) as caller:
            await _find(caller, CAMERAS, device_id)
            days = await store.trend(caller.connection, device_id, query.days)
        return {"device_id": device_id, "days": days}

    @_route("GET", "sites/{site_id}/summary", models.SiteSummary)
    async def summary(
        self, request: Request, site_id: PathId, query: Annotated[kinds.DaysFilter, Query()]
    ) -> Any:
        """A site's days."""
        async with self.people.caller(request, query.company) as caller:
            await _find(caller, SITES, site_id)
            rows = await store.summary(caller.connection, site_id, query.days)
        days = [{**row, "band": completeness.band(*_counts(row))} for row in rows]
        return {"site_id": site_id, "days": days}

    @_route("GET", "comparison", models.ProgramComparison)
    async def comparison(
        self, request: Request, query: Annotated[kinds.DaysFilter, Query()]
    ) -> Any:
        """Programs side by side."""
        async with self.people.caller(request, query.company) as caller:
            rows = await store.comparison(caller.connection, caller.company_id, query.days)
        return {"programs": [{**row, "completeness": _complete(*_counts(row))} for row in rows]}

    @_route("GET", "overage", models.Overage)
    async def overage(
        self, request: Request, query: Annotated[kinds.FiguresFilter, Query()]
    ) -> Any:
        """Cameras that woke more than expected, by day."""
        async with self.people.caller(request, query.company) as caller:
            page = await wake_figures.overage(caller.connection, query.figures())
        rows, next_cursor = api.cut(page, query.limit, at="session_date", key="id")
        days = [
            {**{name: value for name, value in row.items() if name != "id"}, "text": _text(row)}
            for row in rows
        ]
        return {"overage": days, "next_cursor": next_cursor}

    # --- commands to cameras, and their rejected messages

    @_route("GET", "commands", models.CameraCommands)
    async def commands(
        self, request: Request, query: Annotated[kinds.CommandFilter, Query()]
    ) -> Any:
        """What cameras are told to do, newest first."""
        return await self._ls(request, COMMANDS, query)

    @_route("GET", "commands/{command_id}", models.CameraCommand)
    async def command(self, visit: AVisit, command_id: PathId) -> Any:
        """One command and its state."""
        return await self._show(visit, COMMANDS, command_id)

    @_route("POST", "devices/{device_id}/commands", models.CameraCommand, status_code=201)
    async def queue_command(self, visit: AVisit, device_id: PathId, body: NewCommand) -> Any:
        """Tell a camera something when it is awake (operators).

        Waits until the camera is awake, for a day at most.
        """
        raw = await body.raw()
        async with self.people.caller(*visit, least=CARE) as caller:
            order = body.decode(raw)
            camera = await _find(caller, CAMERAS, device_id)
            problems = command_queue.problems(
                order.name,
                image_name=order.image_name,
                wake_at=order.wake_at,
                dialect=camera["dialect"],
                now=await store.now(caller.connection),
            )
            if problems:
                raise api.invalid(*problems)
            command_id = await _queue(caller, camera["device_id"], order)
            return await _find(caller, COMMANDS, command_id)

    @_route("GET", "quarantine", models.CameraMessages)
    async def quarantine(
        self, request: Request, query: Annotated[kinds.QuarantineFilter, Query()]
    ) -> Any:
        """What was rejected of cameras, newest first."""
        return await self._ls(request, QUARANTINE, query)

    @_route("GET", "quarantine/{quarantine_id}", models.CameraMessageInFull)
    async def message(self, visit: AVisit, quarantine_id: PathId) -> Any:
        """One rejected message, with its bytes.

        With its bytes, or the first of them.
        """
        async with self.people.caller(*visit) as caller:
            row = await _find(caller, QUARANTINE, quarantine_id)
            raw = await store.raw(caller.connection, row["quarantine_id"])
        return {**row, "raw_base64": b64encode(raw).decode()}

    @_route("GET", "unknown-cameras", models.UnknownCameras, responses={403: http.ERRORS[403]})
    async def unknown(self, visit: AVisit) -> Any:
        """Cameras that nobody registered (super admins).

        They belong to no company: who runs the platform has to say whose they are.
        """
        async with self.people.caller(*visit) as caller:
            if not caller.is_super_admin:
                raise HttpError(403, "this is for super admins")
            return {"cameras": await registry.unknown_cameras(await caller.become_service())}


async def _find(caller: Caller, kind: Kind, key: UUID) -> Row:
    """Raises HttpError 404, also for rows of other companies."""
    row = await store.find(caller.connection, kind, key)
    if row is None:
        raise HttpError(404, f"there is no such {kind.singular}")
    return row


async def _schedule(caller: Caller, device_id: UUID, order: models.ScheduleRequest) -> str:
    """Raises HttpError 400 for an invalid schedule, or 404."""
    await _find(caller, CAMERAS, device_id)
    if problem := await store.cron_problem(caller.connection, order.new_wake_schedule_cron):
        raise api.invalid(("new_wake_schedule_cron", problem))
    return order.new_wake_schedule_cron


async def _queue(caller: Caller, device_id: UUID, order: models.NewCommand) -> UUID:
    service = await caller.become_service()
    try:
        return await command_queue.queue(
            service,
            device_id,
            name=order.name,
            created_by=caller.email,
            image_name=order.image_name,
            wake_at=order.wake_at,
        )
    except command_queue.NotQueuedError as error:
        raise HttpError(409, str(error)) from None


async def _checked(caller: Caller, values: dict[str, Any]) -> dict[str, Any]:
    """Check references, schedule and MAC address. Raises HttpError 400 with every problem."""
    problems: list[tuple[str, str]] = []
    for name, kind in (("program_id", PROGRAMS), ("site_id", SITES)):
        key: UUID | None = values.get(name)
        if key is not None and await store.find(caller.connection, kind, key) is None:
            problems.append((name, f"there is no such {kind.singular}"))
    if cron := values.get("wake_schedule_cron"):
        problem = await store.cron_problem(caller.connection, cron)
        problems += [("wake_schedule_cron", problem)] if problem else []
    if "mac" in values:
        try:
            values = {**values, "mac": mac.normal(values["mac"])}
        except ValueError as error:
            problems.append(("mac", str(error)))
    if problems:
        raise api.invalid(*problems)
    return values


def _shown(kind: Kind, row: Mapping[str, Any]) -> Mapping[str, Any]:
    if kind is not SESSIONS:
        return row
    return {**row, "completeness": _complete(*_counts(row))}


def _counts(row: Mapping[str, Any]) -> tuple[int, int]:
    return int(row["completed_wake_count"]), int(row["expected_wake_count"])


def _complete(completed: int, expected: int) -> Row:
    return {
        "pct": completeness.percent(completed, expected),
        "shown_pct": completeness.shown(completed, expected),
        "band": completeness.band(completed, expected),
    }


def _text(row: Mapping[str, Any]) -> str:
    return completeness.device(
        row["device_name"], received=row["received"], expected=row["expected"]
    )


def _share(row: Row) -> Row:
    return {
        **{name: value for name, value in row.items() if name != "sessions"},
        "completeness": _complete(row["completed"], row["expected"]),
        "text": _text(row),
    }


_FIGURES = (
    "sessions", "expected", "received", "completed", "failed", "pending", "extra", "on_schedule",
    "avg_temperature", "avg_humidity",
)  # fmt: skip


def _figures(row: Mapping[str, Any]) -> Row:
    return {
        **{name: row[name] for name in _FIGURES},
        "completeness": _complete(row["completed"], row["expected"]),
    }
