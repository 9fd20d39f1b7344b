"""Feed's HTTP routes at the edge: lots in, lots and intakes out, page by page or as CSV."""

import base64
import binascii
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import prometheus_client
from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from farmiq.edge import access, audit, outbox
from farmiq.edge.feed import lot, store
from farmiq.edge.feed.lot import LotReceived
from farmiq.messages.bus import BusEvent
from farmiq.messages.check import Invalid
from farmiq.plumbing import db, http, ids, log, sheet
from farmiq.plumbing.http import HttpError

LOTS = "/api/v1/feed/lots"
INTAKES = "/api/v1/feed/intakes"

MOST_BYTES = 64 * 1024
LONGEST_KEY = 255
MOST_ROWS = 1000

RECEIVED = prometheus_client.Counter(
    "farmiq_feed_lots_total", "Lots posted to the edge", ["outcome"]
)

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
Rows = Callable[[db.Connection, Mapping[str, Any]], Awaitable[list[dict[str, Any]]]]


class Asked(BaseModel):
    """Which rows, newest first. `cursor` is the `next_cursor` of the page before."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: Id | None = None
    farm: Id | None = None
    barn: Id | None = None
    device: Id | None = None
    lot: Id | None = None
    begin: AwareDatetime | None = Field(None, alias="from")
    end: AwareDatetime | None = Field(None, alias="to")
    limit: int = Field(100, ge=1, le=MOST_ROWS)
    cursor: str | None = Field(None, max_length=256)
    format: Literal["json", "csv"] = "json"


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    key: str
    rows: Rows


class Api:
    def __init__(self, pool: db.Pool, *, service: str) -> None:
        self._pool = pool
        self._log = log.get(service)

    def add_to(self, app: FastAPI) -> None:
        app.add_route(LOTS, self.post_lot, methods=["POST"])
        app.add_api_route(LOTS, self.get_lots, methods=["GET"])
        app.add_api_route(INTAKES, self.get_intakes, methods=["GET"])

    async def post_lot(self, request: Request) -> JSONResponse:
        caller = await access.require(request, self._pool, "operator")
        raw = await _body(request)
        said = _read(raw)
        event = lot.event(
            said,
            raw,
            event_id=ids.new(),
            trace_id=http.trace_id(request),
            now=datetime.now(UTC),
        )
        new = store.Lot(
            event=event,
            feed_lot_id=said.feed_lot_id,
            quantity_kg=said.quantity_kg,
            recorded_by=caller.name,
            idempotency_key=_key(request),
            content_hash=lot.content_hash(said),
        )
        row = await self._keep(new)
        return JSONResponse(_shown(row), status_code=201)

    async def _keep(self, new: store.Lot) -> dict[str, Any]:
        """The lot, its event and the note of who did it in one transaction, or none of them."""
        try:
            async with db.transaction(self._pool) as tx:
                is_new = await store.keep_lot(tx, new)
                if is_new:
                    await _owe(tx, new)
                row = await _same(tx, new)
        except db.UNAVAILABLE as error:
            raise self._away(error) from error
        self._note("new" if is_new else "repeated", new.event)
        return row

    def _note(self, outcome: str, event: BusEvent) -> None:
        RECEIVED.labels(outcome=outcome).inc()
        self._log.info(
            f"feed.lot_{outcome}",
            event_id=str(event.event_id),
            event_type=event.event_type,
            trace_id=event.trace_id,
        )

    async def get_lots(self, request: Request, asked: Annotated[Asked, Query()]) -> Response:
        return await self._page(request, asked, Page("lots", "event_id", store.lots))

    async def get_intakes(self, request: Request, asked: Annotated[Asked, Query()]) -> Response:
        return await self._page(request, asked, Page("intakes", "intake_id", store.intakes))

    async def _page(self, request: Request, asked: Asked, page: Page) -> Response:
        await access.require(request, self._pool, "viewer")
        after_at, after_id = _place(asked.cursor) if asked.cursor else (None, None)
        # One more than asked for says whether there is a next page.
        wanted = {**asked.model_dump(), "after_at": after_at, "after_id": after_id}
        try:
            async with self._pool.connection(timeout=5.0) as connection:
                rows = await page.rows(connection, {**wanted, "limit": asked.limit + 1})
        except db.UNAVAILABLE as error:
            raise self._away(error) from error
        shown = [_shown(row) for row in rows[: asked.limit]]
        more = len(rows) > asked.limit
        following = _cursor(rows[asked.limit - 1], page.key) if more else None
        if asked.format == "csv":
            return _csv(shown, following)
        return JSONResponse({page.name: shown, "next_cursor": following})

    def _away(self, error: BaseException) -> HttpError:
        self._log.warning("feed.database_away", error=db.first_line(error))
        return HttpError(503, "the edge's database is away; try again", retry_after_s=5)


async def _owe(tx: db.Connection, new: store.Lot) -> None:
    """Raises HttpError 409 if the id is that of another event, of whatever kind (C-18)."""
    event = new.event
    if (event.tenant_id, event.event_id) not in await outbox.append(tx, [event]):
        RECEIVED.labels(outcome="conflict").inc()
        raise HttpError(409, f"event_id {event.event_id} belongs to another event")
    await audit.note(
        tx,
        actor=new.recorded_by,
        action="feed.lot.add",
        subject=f"{event.tenant_id}/{new.feed_lot_id}",
        event_id=event.event_id,
    )


async def _same(tx: db.Connection, new: store.Lot) -> dict[str, Any]:
    """What stands under this id and key. Raises HttpError 409 if it is not what was said now."""
    rows = await store.known_lots(
        tx,
        tenant_id=new.event.tenant_id,
        event_id=new.event.event_id,
        idempotency_key=new.idempotency_key,
    )
    if len(rows) != 1 or rows[0].pop("content_hash") != new.content_hash:
        RECEIVED.labels(outcome="conflict").inc()
        raise HttpError(
            409,
            "this event_id or Idempotency-Key was used for another lot; send a new one, or the "
            "same body",
        )
    return rows[0]


async def _body(request: Request) -> bytes:
    """The body, given up on as soon as it is larger than a lot can be."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpError(415, "send the lot as application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HttpError(413, f"a lot has at most {MOST_BYTES} bytes")
    return body


def _read(raw: bytes) -> LotReceived:
    try:
        return lot.read(raw)
    except Invalid as invalid:
        details = [_detail(reason) for reason in invalid.reasons]
        raise HttpError(400, "the lot is not valid; nothing was stored", details=details) from None


def _detail(reason: str) -> dict[str, str]:
    said, _, where = reason.partition(" - at `")
    return {"field": where.removesuffix("`") or "$", "reason": said}


def _key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not (
        key.isascii() and key.isprintable() and 0 < len(key) <= LONGEST_KEY
    ):
        raise HttpError(400, f"Idempotency-Key must be 1 to {LONGEST_KEY} printable characters")
    return key


def _cursor(row: Mapping[str, Any], key: str) -> str:
    text = f"{row['occurred_at'].astimezone(UTC).isoformat()}|{row[key]}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _place(cursor: str) -> tuple[datetime, UUID]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        at, _, key = text.partition("|")
        return datetime.fromisoformat(at).astimezone(UTC), UUID(key)
    except (binascii.Error, ValueError, OverflowError):
        raise HttpError(400, "`cursor` is not a `next_cursor` that this edge gave") from None


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no word for it
    return str(value) if isinstance(value, UUID) else value


def _csv(rows: list[dict[str, Any]], following: str | None) -> Response:
    text = sheet.lines([list(rows[0]), *(list(row.values()) for row in rows)]) if rows else ""
    headers = {"Link": f'<?cursor={following}>; rel="next"'} if following else None
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)
