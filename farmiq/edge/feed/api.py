"""Feed's HTTP routes at the edge: lots in, lots and intakes out, page by page or as CSV."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import prometheus_client
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from farmiq.asked import Wrong, cursor
from farmiq.edge import access, audit, outbox
from farmiq.edge.feed import ask, lot, store
from farmiq.edge.feed.lot import LotReceived
from farmiq.messages.bus import BusEvent
from farmiq.messages.check import Invalid
from farmiq.plumbing import db, http, ids, log, sheet
from farmiq.plumbing.http import HttpError

LOTS = "/api/v1/feed/lots"
INTAKES = "/api/v1/feed/intakes"

MOST_BYTES = 64 * 1024
LONGEST_KEY = 255

RECEIVED = prometheus_client.Counter(
    "farmiq_feed_lots_total", "Lots posted to the edge", ["outcome"]
)

Rows = Callable[[db.Connection, Mapping[str, Any]], Awaitable[list[dict[str, Any]]]]


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    key: str
    columns: Sequence[str]
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
        caller = await access.require(request, self._pool, "operator", by_tenant=True)
        raw = await http.body(request, what="a lot", most=MOST_BYTES)
        said = _read(raw)
        caller.tenant(said.tenant_id)
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
                await _require_tenant(tx, new.event.tenant_id)
                is_new = await store.add_lot(tx, new)
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

    async def get_lots(self, request: Request) -> Response:
        return await self._page(request, Page("lots", "event_id", store.LOT, store.lots))

    async def get_intakes(self, request: Request) -> Response:
        return await self._page(request, Page("intakes", "intake_id", store.INTAKE, store.intakes))

    async def _page(self, request: Request, page: Page) -> Response:
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
                rows = await page.rows(connection, wanted)
        except db.UNAVAILABLE as error:
            raise self._away(error) from error
        shown = [_shown(row) for row in rows[: asked.limit]]
        last = rows[asked.limit - 1] if len(rows) > asked.limit else None
        following = cursor(last["occurred_at"], last[page.key]) if last else None
        if asked.csv:
            return _csv(page, shown, _link(parameters, following) if following else None)
        return JSONResponse({page.name: shown, "next_cursor": following})

    def _away(self, error: BaseException) -> HttpError:
        self._log.warning("feed.database_away", error=db.first_line(error))
        return HttpError(503, "the edge's database is away; try again", retry_after_s=5)


async def _require_tenant(tx: db.Connection, tenant_id: str) -> None:
    """Raises HttpError 400 if it is nobody's here: a typing error must not reach the cloud."""
    if not await store.is_known_tenant(tx, tenant_id):
        reason = f"no device or farm of tenant {tenant_id!r} is known at this edge"
        details = [{"field": "$.tenant_id", "reason": reason}]
        raise HttpError(400, "the lot is not valid; nothing was stored", details=details)


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


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no word for it
    return str(value) if isinstance(value, UUID) else value


def _csv(page: Page, rows: list[dict[str, Any]], link: str | None) -> Response:
    text = sheet.lines([page.columns, *([row[name] for name in page.columns] for row in rows)])
    headers = {"Link": link} if link else None
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def _link(parameters: Sequence[tuple[str, str]], cursor: str) -> str:
    """The same question, one page on."""
    kept = [(name, value) for name, value in parameters if name != "cursor"]
    return f'<?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'
