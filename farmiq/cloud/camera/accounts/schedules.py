"""Routes of schedule changes: look first, ask, take back. They count from the site's midnight."""

from dataclasses import dataclass
from uuid import UUID

from fastapi import FastAPI, Request, Response

from farmiq.cloud.camera.accounts import answers, listing, orders, store
from farmiq.cloud.camera.accounts.kinds import CAMERAS, CHANGES
from farmiq.cloud.camera.accounts.people import Caller, People, again
from farmiq.cloud.camera.accounts.registering import CAMERA_WORK


@dataclass
class Schedules:
    people: People

    def add_to(self, app: FastAPI, root: str) -> None:
        changes = f"{root}/devices/{{device_id}}/schedule-changes"
        for path, endpoint, method in (
            (changes, self.ls, "GET"),
            (changes, self.request, "POST"),
            (f"{changes}/preview", self.preview, "POST"),
            (f"{root}/schedule-changes/{{change_id}}/cancel", self.cancel, "POST"),
        ):
            app.add_route(path, again(endpoint), methods=[method])

    async def ls(self, request: Request) -> Response:
        asked = listing.question(request, CHANGES.filters)
        async with self.people.caller(request, asked.company) as caller:
            device_id = answers.path_id(request, "device_id")
            await listing.there(caller, CAMERAS, device_id)
            found = await store.page(caller.connection, CHANGES, asked, {"device": device_id})
        rows, following = listing.cut(found, asked, at=CHANGES.at, key=CHANGES.key)
        return answers.answer({"changes": rows, "next_cursor": following})

    async def preview(self, request: Request) -> Response:
        """When it would take effect; nothing is kept."""
        asked, raw = listing.company(request), await answers.raw(request)
        async with self.people.caller(request, asked) as caller:
            device_id, cron = await _wish(caller, request, raw)
            found = await store.preview(caller.connection, device_id, cron)
        return answers.answer(found)

    async def request(self, request: Request) -> Response:
        asked, raw = listing.company(request), await answers.raw(request)
        async with self.people.caller(request, asked, least=CAMERA_WORK) as caller:
            device_id, cron = await _wish(caller, request, raw)
            made = await store.request_change(caller.connection, device_id, cron)
            row = await listing.there(caller, CHANGES, UUID(made["change_id"]))
        return answers.answer({**row, "text": made["text"]}, status=201)

    async def cancel(self, request: Request) -> Response:
        asked, raw = listing.company(request), await answers.raw(request)
        async with self.people.caller(request, asked, least=CAMERA_WORK) as caller:
            answers.decoded(raw, orders.Deed)
            key = answers.path_id(request, "change_id")
            await listing.there(caller, CHANGES, key)
            await store.cancel_change(caller.connection, key)
            row = await listing.there(caller, CHANGES, key)
        return answers.answer(row)


async def _wish(caller: Caller, request: Request, raw: bytes) -> tuple[UUID, str]:
    """Which camera, and its schedule if it is one. Raises HttpError 400 or 404."""
    device_id = answers.path_id(request, "device_id")
    cron = answers.decoded(raw, orders.ScheduleWish).new_wake_schedule_cron
    await listing.there(caller, CAMERAS, device_id)
    if problem := await store.cron_problem(caller.connection, cron):
        raise answers.bad([("new_wake_schedule_cron", problem)])
    return device_id, cron
