"""Lists and single things of every kind, as the person who asks may see them."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from fastapi import Request, Response

from farmiq.asked import Wrong
from farmiq.cloud import completeness
from farmiq.cloud.camera.accounts import answers, ask, store
from farmiq.cloud.camera.accounts.ask import Question, Reader
from farmiq.cloud.camera.accounts.kinds import SESSIONS, Kind
from farmiq.cloud.camera.accounts.people import Caller, People
from farmiq.cloud.camera.accounts.store import Row
from farmiq.plumbing.http import HttpError


def question(request: Request, filters: Mapping[str, Reader]) -> Question:
    """Raises HttpError 400."""
    try:
        return ask.read(request.query_params.multi_items(), filters)
    except Wrong as wrong:
        raise HttpError(400, "the request is not valid", details=wrong.details) from None


def company(request: Request) -> UUID | None:
    """The company of a route that takes nothing else. Raises HttpError 400."""
    try:
        return ask.read_company(request.query_params.multi_items())
    except Wrong as wrong:
        raise HttpError(400, "the request is not valid", details=wrong.details) from None


async def ls(
    people: People, request: Request, kind: Kind, more: Mapping[str, Any] | None = None
) -> Response:
    asked = question(request, kind.filters)
    async with people.caller(request, asked.company) as caller:
        found = await store.page(caller.connection, kind, asked, more)
    rows, following = cut(found, asked, at=kind.at, key=kind.key)
    return answers.answer({kind.many: [shown(kind, row) for row in rows], "next_cursor": following})


async def show(people: People, request: Request, kind: Kind) -> Response:
    asked = company(request)
    async with people.caller(request, asked) as caller:
        row = await there(caller, kind, answers.path_id(request, kind.key))
    return answers.answer(shown(kind, row))


async def there(caller: Caller, kind: Kind, key: UUID) -> Row:
    """Raises HttpError 404, also for what another company has."""
    row = await store.one(caller.connection, kind, key)
    if row is None:
        raise HttpError(404, f"there is no such {kind.one}")
    return row


def cut(rows: list[Row], asked: Question, *, at: str, key: str) -> tuple[list[Row], str | None]:
    """A page, and where the next begins."""
    last = rows[asked.limit - 1] if len(rows) > asked.limit else None
    return rows[: asked.limit], ask.cursor(last[at], last[key]) if last else None


def shown(kind: Kind, row: Row) -> Row:
    if kind is not SESSIONS:
        return row
    counts = row["completed_wake_count"], row["expected_wake_count"]
    return {**row, "completeness": complete(*counts)}


def complete(completed: int, expected: int) -> Row:
    return {
        "pct": completeness.percent(completed, expected),
        "shown_pct": completeness.shown(completed, expected),
        "band": completeness.band(completed, expected),
    }
