"""Routes of what happened: days of sites, wakes, images, alerts."""

from dataclasses import dataclass

from fastapi import FastAPI, Request, Response

from farmiq.cloud import camera_images, completeness
from farmiq.cloud.camera.accounts import answers, listing, orders, rollups, store
from farmiq.cloud.camera.accounts.kinds import ALERTS, IMAGES, SESSIONS, WAKES
from farmiq.cloud.camera.accounts.people import People, again
from farmiq.cloud.camera.accounts.store import Row
from farmiq.plumbing import pictures
from farmiq.plumbing.gallery import Gallery

CARE = "operator"


@dataclass
class Days:
    people: People
    gallery: Gallery | None

    def add_to(self, app: FastAPI, root: str) -> None:
        for path, endpoint, method in (
            ("sessions", self.sessions, "GET"),
            ("sessions/{session_id}", self.session, "GET"),
            ("wakes", self.wakes, "GET"),
            ("wakes/{payload_id}", self.wake, "GET"),
            ("images", self.images, "GET"),
            ("images/{image_id}", self.image, "GET"),
            ("images/{image_id}/content", self.content, "GET"),
            ("images/{image_id}/resend", self.resend, "POST"),
            ("alerts", self.alerts, "GET"),
            ("alerts/{alert_id}/resolve", self.resolve, "POST"),
        ):
            app.add_route(f"{root}/{path}", again(endpoint), methods=[method])

    async def sessions(self, request: Request) -> Response:
        return await listing.ls(self.people, request, SESSIONS)

    async def session(self, request: Request) -> Response:
        """With each camera's share, and both as a person reads them."""
        async with self.people.caller(request, listing.company(request)) as caller:
            row = await listing.there(caller, SESSIONS, answers.path_id(request, "session_id"))
            shares = await rollups.of_session(caller.connection, row["session_id"])
        whole = listing.shown(SESSIONS, row)
        return answers.answer(
            {**whole, "text": session_text(row), "devices": [_share(each) for each in shares]}
        )

    async def wakes(self, request: Request) -> Response:
        return await listing.ls(self.people, request, WAKES)

    async def wake(self, request: Request) -> Response:
        """With all that the camera said."""
        async with self.people.caller(request, listing.company(request)) as caller:
            row = await listing.there(caller, WAKES, answers.path_id(request, "payload_id"))
            said = await store.telemetry(caller.connection, row["payload_id"])
        return answers.answer({**row, "telemetry_data": said})

    async def images(self, request: Request) -> Response:
        return await listing.ls(self.people, request, IMAGES)

    async def image(self, request: Request) -> Response:
        return await listing.show(self.people, request, IMAGES)

    async def content(self, request: Request) -> Response:
        """The JPEG, without what a camera wrote of its place."""
        async with self.people.caller(request, listing.company(request)) as caller:
            key = answers.path_id(request, "image_id")
            found = await camera_images.stored(caller.connection, key)
        gallery = camera_images.opened(self.gallery)
        return await gallery.whole(request, found.key, found.tag, pictures.JPEG)

    async def resend(self, request: Request) -> Response:
        """Asks for this very image again; of one that is complete nothing changes (C-79)."""
        asked, raw = listing.company(request), await answers.raw(request)
        async with self.people.caller(request, asked, least=CARE) as caller:
            answers.decoded(raw, orders.Deed)
            key = answers.path_id(request, "image_id")
            await listing.there(caller, IMAGES, key)
            await store.resend(caller.connection, key)
            row = await listing.there(caller, IMAGES, key)
        return answers.answer(row)

    async def alerts(self, request: Request) -> Response:
        return await listing.ls(self.people, request, ALERTS)

    async def resolve(self, request: Request) -> Response:
        asked, raw = listing.company(request), await answers.raw(request)
        async with self.people.caller(request, asked, least=CARE) as caller:
            answers.decoded(raw, orders.Deed)
            key = answers.path_id(request, "alert_id")
            await listing.there(caller, ALERTS, key)
            service = await caller.become_service()
            await store.resolve(service, caller.company_id, key)
            row = await listing.there(caller, ALERTS, key)
        return answers.answer(row)


def session_text(row: Row) -> str:
    return completeness.session(
        row["session_date"],
        expected=row["expected_wake_count"],
        completed=row["completed_wake_count"],
        failed=row["failed_wake_count"],
        extra=row["extra_wake_count"],
    )


def _share(row: Row) -> Row:
    text = completeness.device(
        row["device_name"], received=row["received"], expected=row["expected"]
    )
    return {
        **{name: value for name, value in row.items() if name != "sessions"},
        "completeness": listing.complete(row["completed"], row["expected"]),
        "text": text,
    }
