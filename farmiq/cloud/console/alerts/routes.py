"""The routes of alerts: what is wrong, one episode in full, and what people do about it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal
from uuid import UUID

from fastapi import FastAPI, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.cloud import episodes
from farmiq.cloud.alerts.episodes import queries as alert_queries
from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.acting import redirect
from farmiq.cloud.console.alerts import queries, view
from farmiq.cloud.console.alerts.view import DetailView, ListView
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing.http import HttpError
from farmiq.ui import look

EPISODE = "/alerts/{episode_id}"
CARE = "operator"
Change = Callable[..., Awaitable[str | None]]
MAX_HELD, MAX_MESSAGES = 100, 200


class ListFilter(api.Filter):
    """Which episodes a page shows."""

    state: Literal["active", "acknowledged", "resolved"] = "active"
    page: Annotated[int, Field(ge=1, le=view.MAX_PAGE)] = 1
    company: str | None = None


@dataclass(frozen=True)
class AlertPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/alerts", self.list_page, "GET"),
            ("/alerts/rows", self.rows, "GET"),
            (EPISODE, self.episode, "GET"),
            (f"{EPISODE}/parts", self.parts, "GET"),
            (f"{EPISODE}/acknowledge", self.acknowledge, "POST"),
            (f"{EPISODE}/end", self.end, "POST"),
        )

    async def list_page(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self.pages.page("alerts.html", signed_in, await self._list(request, signed_in))

    async def rows(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        shown = await self._list(request, signed_in)
        csrf = pages.form_token(signed_in, shown.company)
        return await look.fragment(request, "alert_list.html", "alerts", shown, csrf)

    async def episode(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        shown = await self._episode(request, signed_in)
        return await self.pages.page("alert.html", signed_in, shown)

    async def parts(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        shown = await self._episode(request, signed_in)
        csrf = pages.form_token(signed_in, shown.company)
        return await look.fragment(request, "alert_detail.html", "parts", shown, csrf)

    async def acknowledge(self, request: Request) -> Response:
        """Somebody looks after it: nobody else is called."""
        return await self._act(request, episodes.acknowledge, refused="ended")

    async def end(self, request: Request) -> Response:
        """Somebody says that it is over."""
        return await self._act(request, episodes.end, refused="already")

    async def _act(self, request: Request, change: Change, *, refused: str) -> Response:
        form = await acting.form(self.pages, request)
        episode_id = _episode_id(request)
        note = form.get("note") or None
        if note is not None and len(note) > episodes.MAX_NOTE:
            raise HttpError(422, f"the note has more than {episodes.MAX_NOTE} characters")
        async with acting.caller(self.pages, request, least=CARE) as caller:
            if await queries.find(caller.connection, episode_id) is None:
                raise _not_found()
            service = await caller.become_service()
            outcome = await change(
                service, caller.tenant_id, episode_id, by=caller.email, note=note
            )
            if outcome == refused:
                raise HttpError(409, "the episode is over already: load the page again")
        return redirect(request, look.own_address(form.get("next") or f"/alerts/{episode_id}"))

    async def _list(self, request: Request, signed_in: SignIn) -> ListView:
        query = api.parse(ListFilter, request)
        size = view.page_size(query.state)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            listed = await queries.listed(
                connection, query.state, limit=size + 1, offset=size * (query.page - 1)
            )
        # In a thread, like rendering: many episodes must not delay other requests.
        return await asyncio.to_thread(
            view.list_view,
            company,
            listed.episodes,
            listed.counts,
            state=query.state,
            page=query.page,
            now=now,
        )

    async def _episode(self, request: Request, signed_in: SignIn) -> DetailView:
        episode_id = _episode_id(request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            episode = await queries.find(connection, episode_id)
            if episode is None:
                raise _not_found()
            rule = parent = None
            if episode.rule_id is not None:
                rule = await alert_queries.rule(connection, company.tenant_id, episode.rule_id)
            if episode.parent_id is not None:
                parent = await queries.find(connection, UUID(episode.parent_id))
            return view.detail_view(
                company,
                episode,
                rule=rule,
                parent=parent,
                held=await queries.held_by(connection, episode_id, limit=MAX_HELD),
                steps=await queries.steps(connection, episode_id),
                messages=await queries.messages(connection, episode_id, limit=MAX_MESSAGES),
                times_before=await queries.times_before(connection, episode_id),
                now=now,
            )


def _episode_id(request: Request) -> UUID:
    try:
        return UUID(request.path_params["episode_id"])
    except ValueError:
        raise _not_found() from None


def _not_found() -> HttpError:
    return HttpError(404, "there is no such alert")
