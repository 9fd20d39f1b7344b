"""The routes of programs: control against experimental, and the figures of one program."""

import asyncio
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import FastAPI, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.cloud import wake_figures
from farmiq.cloud.camera.accounts import kinds
from farmiq.cloud.console import pages
from farmiq.cloud.console.programs import queries
from farmiq.cloud.console.programs import view as programs
from farmiq.cloud.console.programs.view import ProgramsQuery
from farmiq.cloud.wake_figures import FiguresQuery
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words

MAX_ROWS = 100


class ProgramsFilter(api.Filter):
    """A level, so many days, and what the figures are of."""

    days: Annotated[int, Field(ge=1, le=366)] = 30
    level: Annotated[
        kinds.Level | None,
        api.any_case(programs.LEVELS),
    ] = None
    site: UUID | None = None
    session: UUID | None = None
    device: UUID | None = None
    company: str | None = None


@dataclass(frozen=True)
class ProgramPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/programs", self.programs, "GET"),
            ("/programs/{program_id}", self.program, "GET"),
        )

    async def programs(self, request: Request) -> Response:
        return await self._page(request, None)

    async def program(self, request: Request) -> Response:
        try:
            program_id = UUID(request.path_params["program_id"])
        except ValueError:
            raise HttpError(404, "there is no such program") from None
        return await self._page(request, program_id)

    async def _page(self, request: Request, program_id: UUID | None) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        query = _query(request, program_id)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            if program_id and await queries.program(connection, program_id) is None:
                raise HttpError(404, "there is no such program")
            today = now.astimezone(words.zone(company.timezone)).date()
            begin = programs.begin_of(query.days, today=today)
            chosen = FiguresQuery(
                program=program_id,
                site=query.site,
                session=query.session,
                device=query.device,
                begin=begin,
                limit=MAX_ROWS,
            )
            all_programs = await queries.programs(connection)
            of_programs = await wake_figures.page(
                connection, "program", FiguresQuery(begin=begin, limit=queries.MAX_PROGRAMS)
            )
            level_rows = await wake_figures.page(connection, query.level, chosen)
            totals = await wake_figures.totals(connection, chosen)
            days = await queries.days(connection, begin=begin)
            names = await queries.names(
                connection, site=query.site, session=query.session, device=query.device
            )
        view = await asyncio.to_thread(
            programs.view,
            company,
            query=query,
            begin=begin,
            programs=all_programs,
            of_programs=of_programs,
            level_rows=level_rows,
            totals=totals,
            days=days,
            names=names,
            limit=MAX_ROWS,
            now=now,
        )
        template = "program.html" if program_id else "programs.html"
        return await self.pages.page(template, signed_in, view)


def _query(request: Request, program_id: UUID | None) -> ProgramsQuery:
    """A camera is no filter of the levels above it."""
    given = api.parse(ProgramsFilter, request)
    level = given.level or ("site" if program_id else "program")
    if program_id and level in ("company", "program"):
        level = "site"
    return ProgramsQuery(
        days=given.days,
        level=level,
        program=program_id,
        site=given.site,
        session=given.session,
        device=given.device if level in ("device", "payload") else None,
    )
