"""Weigh sessions' HTTP routes at the edge: a list, page by page or as CSV, and one in full."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from farmiq.asked import Wrong, cursor
from farmiq.edge import access
from farmiq.edge.weighvision import ask, look
from farmiq.plumbing import db, log, sheet
from farmiq.plumbing.http import HttpError

SESSIONS = "/api/v1/weighvision/sessions"
SESSION = f"{SESSIONS}/{{session_id}}"


class Api:
    def __init__(self, pool: db.Pool, *, timezone: str, service: str) -> None:
        self._pool = pool
        self._timezone = timezone
        self._log = log.get(service)

    def add_to(self, app: FastAPI) -> None:
        app.add_api_route(SESSIONS, self.get_sessions, methods=["GET"])
        app.add_api_route(SESSION, self.get_session, methods=["GET"])

    async def get_sessions(self, request: Request) -> Response:
        caller = await access.require(request, self._pool, "viewer", by_tenant=True)
        parameters = request.query_params.multi_items()
        try:
            asked = ask.read(parameters)
        except Wrong as wrong:
            raise HttpError(400, "the request is not valid", details=wrong.details) from None
        # One more than asked for says whether there is a next page.
        tenant = caller.tenant(asked.tenant)
        wanted = {**asdict(asked), "tenant": tenant, "limit": asked.limit + 1}
        try:
            async with self._pool.connection(timeout=5.0) as connection:
                rows = await look.page(connection, wanted, timezone=self._timezone)
        except db.UNAVAILABLE as error:
            raise self._away(error) from error
        shown = [plain(row) for row in rows[: asked.limit]]
        last = rows[asked.limit - 1] if len(rows) > asked.limit else None
        following = cursor(last["start_at"], last["session_id"]) if last else None
        if asked.csv:
            return _csv(shown, _link(parameters, following) if following else None)
        return JSONResponse({"sessions": shown, "next_cursor": following})

    async def get_session(self, request: Request) -> Response:
        caller = await access.require(request, self._pool, "viewer", by_tenant=True)
        try:
            session_id = UUID(request.path_params["session_id"])
        except ValueError:
            raise HttpError(404, "there is no such session") from None
        try:
            async with self._pool.connection(timeout=5.0) as connection:
                found = await look.one(connection, session_id)
        except db.UNAVAILABLE as error:
            raise self._away(error) from error
        if found is None or not caller.reaches(found["tenant_id"]):
            raise HttpError(404, "there is no such session")
        return JSONResponse(plain(found))

    def _away(self, error: BaseException) -> HttpError:
        self._log.warning("weighvision.database_away", error=db.first_line(error))
        return HttpError(503, "the edge's database is away; try again", retry_after_s=5)


def plain(value: Any) -> Any:
    """As JSON knows it: moments in UTC, ids as text."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, UUID) else value


def _csv(rows: Sequence[Mapping[str, Any]], link: str | None) -> Response:
    text = sheet.lines([look.SESSION, *([row[name] for name in look.SESSION] for row in rows)])
    headers = {"Link": link} if link else None
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def _link(parameters: Sequence[tuple[str, str]], cursor: str) -> str:
    """The same question, one page on."""
    kept = [(name, value) for name, value in parameters if name != "cursor"]
    return f'<?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'
