"""Routes of what goes over the wire: commands to cameras, and what they sent that was refused."""

from base64 import b64encode
from dataclasses import dataclass
from uuid import UUID

from fastapi import FastAPI, Request, Response

from farmiq.cloud.camera import command_queue, registry
from farmiq.cloud.camera.accounts import answers, listing, orders, store
from farmiq.cloud.camera.accounts.days import CARE
from farmiq.cloud.camera.accounts.kinds import CAMERAS, COMMANDS, QUARANTINE
from farmiq.cloud.camera.accounts.people import Caller, People, again
from farmiq.plumbing.http import HttpError


@dataclass
class Messages:
    people: People

    def add_to(self, app: FastAPI, root: str) -> None:
        for path, endpoint, method in (
            ("commands", self.commands, "GET"),
            ("commands/{command_id}", self.command, "GET"),
            ("devices/{device_id}/commands", self.tell, "POST"),
            ("quarantine", self.quarantine, "GET"),
            ("quarantine/{quarantine_id}", self.message, "GET"),
            ("unknown-cameras", self.unknown, "GET"),
        ):
            app.add_route(f"{root}/{path}", again(endpoint), methods=[method])

    async def commands(self, request: Request) -> Response:
        return await listing.ls(self.people, request, COMMANDS)

    async def command(self, request: Request) -> Response:
        return await listing.show(self.people, request, COMMANDS)

    async def tell(self, request: Request) -> Response:
        """Waits until the camera is awake, for a day at most."""
        asked, raw = listing.company(request), await answers.raw(request)
        async with self.people.caller(request, asked, least=CARE) as caller:
            order = answers.decoded(raw, orders.NewCommand)
            camera = await listing.there(caller, CAMERAS, answers.path_id(request, "device_id"))
            wrong = command_queue.problems(
                order.name,
                image_name=order.image_name,
                wake_at=order.wake_at,
                dialect=camera["dialect"],
                now=await store.now(caller.connection),
            )
            if wrong:
                raise answers.bad(wrong)
            made = await _queue(caller, camera["device_id"], order)
            row = await listing.there(caller, COMMANDS, made)
        return answers.answer(row, status=201)

    async def quarantine(self, request: Request) -> Response:
        return await listing.ls(self.people, request, QUARANTINE)

    async def message(self, request: Request) -> Response:
        """With its bytes, or the first of them."""
        async with self.people.caller(request, listing.company(request)) as caller:
            row = await listing.there(caller, QUARANTINE, answers.path_id(request, "quarantine_id"))
            raw = await store.raw(caller.connection, row["quarantine_id"])
        return answers.answer({**row, "raw_base64": b64encode(raw).decode()})

    async def unknown(self, request: Request) -> Response:
        """They belong to no company: who runs the platform has to say whose they are."""
        async with self.people.caller(request, listing.company(request)) as caller:
            if not caller.is_super_admin:
                raise HttpError(403, "this is for super admins")
            found = await registry.unknown_cameras(await caller.become_service())
        return answers.answer({"cameras": found})


async def _queue(caller: Caller, device_id: UUID, order: orders.NewCommand) -> UUID:
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
    except command_queue.NotQueuedError as why:
        raise HttpError(409, str(why)) from None
