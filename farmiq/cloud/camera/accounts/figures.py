"""Routes of figures: six levels, a camera's trend, a site's days, programs compared, overage."""

from dataclasses import dataclass
from uuid import UUID

from fastapi import FastAPI, Request, Response

from farmiq.asked import Wrong
from farmiq.cloud import completeness
from farmiq.cloud.camera.accounts import answers, ask, listing, rollups, store
from farmiq.cloud.camera.accounts.ask import Question
from farmiq.cloud.camera.accounts.kinds import CAMERAS, SITES
from farmiq.cloud.camera.accounts.people import People, again
from farmiq.cloud.camera.accounts.store import Row
from farmiq.plumbing.http import HttpError


@dataclass
class Figures:
    people: People

    def add_to(self, app: FastAPI, root: str) -> None:
        for path, endpoint in (
            ("rollups/{level}", self.rollup),
            ("devices/{device_id}/trend", self.trend),
            ("sites/{site_id}/summary", self.summary),
            ("comparison", self.comparison),
            ("overage", self.overage),
        ):
            app.add_route(f"{root}/{path}", again(endpoint), methods=["GET"])

    async def rollup(self, request: Request) -> Response:
        level = request.path_params["level"]
        asked = _question(request, level)
        async with self.people.caller(request, asked.company) as caller:
            if level not in ask.LEVELS:
                raise HttpError(404, f"there is no such level; there are: {', '.join(ask.LEVELS)}")
            found = await rollups.page(caller.connection, level, asked)
            totals = await rollups.totals(caller.connection, asked)
        rows, following = listing.cut(found, asked, at="at", key="id")
        return answers.answer(
            {
                "level": level,
                **ask.span(asked),
                "totals": _figures(totals),
                "rows": [
                    {name: row[name] for name in ("id", "name", "day")} | _figures(row)
                    for row in rows
                ],
                "next_cursor": following,
            }
        )

    async def trend(self, request: Request) -> Response:
        days, company = _days(request)
        async with self.people.caller(request, company) as caller:
            device_id = answers.path_id(request, "device_id")
            await listing.there(caller, CAMERAS, device_id)
            found = await store.trend(caller.connection, device_id, days)
        return answers.answer({"device_id": device_id, "days": found})

    async def summary(self, request: Request) -> Response:
        days, company = _days(request)
        async with self.people.caller(request, company) as caller:
            site_id = answers.path_id(request, "site_id")
            await listing.there(caller, SITES, site_id)
            found = await store.summary(caller.connection, site_id, days)
        counted = (
            {
                **row,
                "band": completeness.band(row["completed_wake_count"], row["expected_wake_count"]),
            }
            for row in found
        )
        return answers.answer({"site_id": site_id, "days": list(counted)})

    async def comparison(self, request: Request) -> Response:
        days, company = _days(request)
        async with self.people.caller(request, company) as caller:
            found = await store.comparison(caller.connection, caller.company_id, days)
        counted = [
            {
                **row,
                "completeness": listing.complete(
                    int(row["completed_wake_count"]), int(row["expected_wake_count"])
                ),
            }
            for row in found
        ]
        return answers.answer({"programs": counted})

    async def overage(self, request: Request) -> Response:
        asked = _question(request, "device")
        async with self.people.caller(request, asked.company) as caller:
            found = await rollups.overage(caller.connection, asked)
        rows, following = listing.cut(found, asked, at="session_date", key="id")
        shown = [{name: value for name, value in row.items() if name != "id"} for row in rows]
        texts = (
            completeness.device(
                row["device_name"], received=row["received"], expected=row["expected"]
            )
            for row in rows
        )
        return answers.answer(
            {
                "overage": [{**row, "text": text} for row, text in zip(shown, texts, strict=True)],
                "next_cursor": following,
            }
        )


def _question(request: Request, level: str) -> Question:
    asked = listing.question(request, ask.of_level(level))
    if ask.too_long(asked):
        raise answers.bad([("to", f"is more than {ask.MOST_DAYS} days after from")])
    return asked


def _days(request: Request) -> tuple[int, UUID | None]:
    try:
        return ask.read_days(request.query_params.multi_items())
    except Wrong as wrong:
        raise HttpError(400, "the request is not valid", details=wrong.details) from None


_NAMES = (
    "sessions", "expected", "received", "completed", "failed", "pending", "extra", "on_schedule",
    "avg_temperature", "avg_humidity",
)  # fmt: skip


def _figures(row: Row) -> Row:
    return {
        **{name: row[name] for name in _NAMES},
        "completeness": listing.complete(row["completed"], row["expected"]),
    }
