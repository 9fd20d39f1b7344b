"""`/design`: every part that pages are made of, with invented data."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fastapi import FastAPI, Request, Response

from farmiq.cloud.console import pages
from farmiq.cloud.console.company.view import Company
from farmiq.ui import look
from farmiq.ui.charts import Column

COLOURS = ("paper", "card", "text", "muted", "good", "warn", "bad", "accent", "line")
CELLS = ("received", "receiving", "due", "overdue", "failed", "lost")
GAP = range(9, 12)
TONES = ("good", "warn", "bad", "info", "muted")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    now: datetime
    readings: list[tuple[Any, ...]]
    title: str = "Design"
    colours: tuple[str, ...] = COLOURS
    tones: tuple[str, ...] = TONES
    cells: tuple[str, ...] = CELLS
    columns: tuple[Column, ...] = (
        Column("Mean", "line"),
        Column("Lowest", "low"),
        Column("Highest", "high"),
    )


@dataclass(frozen=True)
class DesignPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(app, ("/design", self.design, "GET"))

    async def design(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (_, company, now):
            view = View(company=company, now=now, readings=_readings(now))
        return await self.pages.page("design.html", signed_in, view)


def _readings(now: datetime) -> list[tuple[Any, ...]]:
    """A day in which nothing came from the ninth hour to the eleventh."""
    first = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=24)
    gap: tuple[None, ...] = (None, None, None)
    return [
        (
            first + timedelta(hours=hour),
            *(gap if hour in GAP else (22 + hour % 7, 20 + hour % 7, 25 + hour % 7)),
        )
        for hour in range(24)
    ]
