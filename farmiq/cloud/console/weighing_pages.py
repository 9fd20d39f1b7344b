"""The routes about weighings: the list of a day, one in full, their fragments, and the API."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from farmiq.asked import Wrong, cursor
from farmiq.cloud.console import ask, look, pages, store, weighing_store, weighings, words
from farmiq.cloud.console.readings import Company
from farmiq.cloud.console.weighings import Detail, View, Weighing
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db, sheet
from farmiq.plumbing.http import HttpError

SESSIONS = "/api/v1/weighvision/sessions"
SESSION = f"{SESSIONS}/{{session_id}}"
NO_STORE = {"Cache-Control": "no-store"}
COLUMNS = (
    "session_id", "farm_id", "barn_id", "device_id", "batch_id", "state", "status", "start_at",
    "end_at", "initial_weight_kg", "final_weight_kg", "image_count", "media_ids", "missing",
    "cancel_reason", "received_at", "station_id", "clock_suspect",
)  # fmt: skip


@dataclass(frozen=True)
class WeighingPages:
    pages: pages.Pages
    patience_s: float

    def add_to(self, app: FastAPI) -> None:
        for path, endpoint, for_programs in (
            ("/weighings", self.day, False),
            ("/weighings/rows", self.rows, False),
            ("/weighings/{session_id}", self.weighing, False),
            ("/weighings/{session_id}/parts", self.parts, False),
            (SESSIONS, self.sessions, True),
            (SESSION, self.session, True),
        ):
            app.add_api_route(
                path,
                look.with_error_pages(endpoint),
                methods=["GET"],
                include_in_schema=for_programs,
            )

    async def day(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self._page("weighings.html", signed_in, await self._day(request, signed_in))

    async def rows(self, request: Request) -> Response:
        found = await self._day(request, await self.pages.must_be_signed_in(request))
        page = await asyncio.to_thread(look.page, "weighings_fragment.html", view=found)
        return await asyncio.to_thread(pages.packed, request, page)

    async def weighing(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self._page("weighing.html", signed_in, await self._one(request, signed_in))

    async def parts(self, request: Request) -> Response:
        found = await self._one(request, await self.pages.must_be_signed_in(request))
        return await asyncio.to_thread(look.page, "weighing_fragment.html", view=found)

    async def _page(self, template: str, signed_in: SignIn, found: View | Detail) -> Response:
        choices = await self.pages.choices(signed_in)
        return await asyncio.to_thread(
            look.page, template, view=found, csrf=signed_in.csrf_token, choices=choices
        )

    async def _day(self, request: Request, signed_in: SignIn) -> View:
        try:
            asked = ask.page(request.query_params.multi_items())
        except Wrong as wrong:
            raise _not_valid(wrong) from None
        async with self.pages.as_person(request, signed_in) as connection:
            company = await self._company(connection, signed_in)
            now = await _now(connection)
            zone = words.zone(company.timezone)
            begin, end = weighings.bounds(asked.day or now.astimezone(zone).date(), zone)
            found = await weighing_store.day(
                connection, begin=begin, end=end, patience_s=self.patience_s
            )
            shown = weighings.on_page(weighings.matching_of(found, asked), asked.page)
            here = await weighing_store.here(connection, weighing_store.pictures(shown))
            last_at = None if found else await weighing_store.last_at(connection)
        # In a thread, like rendering: a large farm must not hold up everybody else's requests.
        return await asyncio.to_thread(
            weighings.view, company, found, asked=asked, here=here, last_at=last_at, now=now
        )

    async def _one(self, request: Request, signed_in: SignIn) -> Detail:
        session_id = _session_id(request)
        async with self.pages.as_person(request, signed_in) as connection:
            company = await self._company(connection, signed_in)
            found = await self._found(connection, session_id)
            events = await weighing_store.events(connection, session_id)
            here = await weighing_store.here(connection, found.media_ids)
            zone = words.zone(company.timezone)
            begin, end = weighings.bounds(found.start_at.astimezone(zone).date(), zone)
            before, after = await weighing_store.beside(connection, found, begin=begin, end=end)
            now = await _now(connection)
        return weighings.detail(
            company,
            found,
            events,
            here=here,
            image=ask.image(request.query_params.get("image")),
            before=before,
            after=after,
            now=now,
        )

    async def sessions(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        parameters = request.query_params.multi_items()
        try:
            asked = ask.question(parameters)
        except Wrong as wrong:
            raise _not_valid(wrong) from None
        async with self.pages.as_person(request, signed_in) as connection:
            company = await self._company(connection, signed_in)
            if asked.day:
                asked = _within(asked, asked.day, words.zone(company.timezone))
            # One more than asked for says whether there is a next page.
            wanted = {**asdict(asked), "limit": asked.limit + 1}
            found = await weighing_store.page(connection, wanted, patience_s=self.patience_s)
        rows, more = found[: asked.limit], found[asked.limit :]
        following = cursor(rows[-1].start_at, rows[-1].session_id) if more else None
        if asked.csv:
            return _csv(rows, _link(parameters, following) if following else None)
        body = {"sessions": [_shown(each) for each in rows], "next_cursor": following}
        return JSONResponse(body, headers=NO_STORE)

    async def session(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        session_id = _session_id(request)
        async with self.pages.as_person(request, signed_in) as connection:
            found = await self._found(connection, session_id)
            events = await weighing_store.events(connection, session_id)
            here = await weighing_store.here(connection, found.media_ids)
        images = [{"media_id": each, "here": each in here} for each in found.media_ids]
        told = {"events": [asdict(each) for each in events], "images": images}
        return JSONResponse({**_shown(found), **_plain(told)}, headers=NO_STORE)

    async def _company(self, connection: db.Connection, signed_in: SignIn) -> Company:
        company = await store.company(connection, email=signed_in.email)
        if company is None:
            raise pages.not_signed_in()
        return company

    async def _found(self, connection: db.Connection, session_id: UUID) -> Weighing:
        found = await weighing_store.one(connection, session_id, patience_s=self.patience_s)
        if found is None:
            raise HttpError(404, "there is no such weighing")
        return found


async def _now(connection: db.Connection) -> datetime:
    """The clock that decides about states decides what today is too."""
    found: datetime = await db.fetch_value(connection, "select fn_now()")
    return found.astimezone(UTC)


def _within(asked: ask.Question, day: date, zone: ZoneInfo) -> ask.Question:
    """A day is a stretch of time in the company's zone; what else bounds it counts too."""
    begin, end = weighings.bounds(day, zone)
    return replace(
        asked,
        begin=max(begin, asked.begin) if asked.begin else begin,
        end=min(end, asked.end) if asked.end else end,
    )


def _session_id(request: Request) -> UUID:
    try:
        return UUID(request.path_params["session_id"])
    except ValueError:
        raise HttpError(404, "there is no such weighing") from None


def _not_valid(wrong: Wrong) -> HttpError:
    return HttpError(400, f"the address is not valid: {wrong}", details=wrong.details)


def _shown(found: Weighing) -> dict[str, Any]:
    row = asdict(found)
    shown: dict[str, Any] = _plain({name: row[name] for name in COLUMNS})
    return {**shown, "lacking": list(found.lacking) if found.state == "INCOMPLETE" else []}


def _plain(value: Any) -> Any:
    """As JSON knows it: moments in UTC, ids as text."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, UUID) else value


def _csv(found: Sequence[Weighing], link: str | None) -> Response:
    rows = [asdict(each) for each in found]
    cells = [
        [" ".join(map(str, v)) if isinstance(v := row[name], tuple) else v for name in COLUMNS]
        for row in rows
    ]
    headers = {**NO_STORE, "Content-Disposition": 'attachment; filename="weighings.csv"'}
    if link:
        headers["Link"] = link
    text = sheet.lines([COLUMNS, *cells])
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def _link(parameters: Sequence[tuple[str, str]], cursor: str) -> str:
    """The same question, one page on."""
    kept = [(name, value) for name, value in parameters if name != "cursor"]
    return f'<?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'
