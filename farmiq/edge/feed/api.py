"""Feed's HTTP routes at the edge: lots and intakes, entered and listed page by page or as CSV."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Query, Request
from prometheus_client import Counter
from pydantic import Field

from farmiq import api
from farmiq.api import At, BodyOf, Id, JsonBody, route
from farmiq.edge import access, audit, outbox, posting, registry
from farmiq.edge.feed import rules, store
from farmiq.edge.feed.rules import LotReceived
from farmiq.farm import postings
from farmiq.farm.postings import IntakePosted
from farmiq.messages.bus import BusEvent
from farmiq.messages.feed import Source
from farmiq.plumbing import db, http, ids, log
from farmiq.plumbing.http import HttpError

LOTS = "/api/v1/feed/lots"
INTAKES = "/api/v1/feed/intakes"

MAX_BYTES = 64 * 1024
MAX_ROWS = 1000
NOT_STORED = "the lot is not valid; nothing was stored"

RECEIVED = Counter("farmiq_feed_lots_total", "Lots posted to the edge", ["outcome"])


class EdgeIntakePosted(IntakePosted, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An intake, and whose it is: an edge may work for several tenants."""

    tenant_id: Id


class FeedFilter(api.PlaceFilter):
    """Which lots or intakes, newest first."""

    lot: Annotated[Id | None, Field(description="Only this feed_lot_id.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    format: Annotated[api.Format, Field(description="json or csv.")] = "json"


class FeedLot(api.Model):
    """A lot as it was recorded; `recorded_by` names the key that it was posted with.

    `quantity_kg` is null if one was recorded that is no number, before there was a bound.
    """

    event_id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str | None
    feed_lot_id: str
    quantity_kg: float | None
    occurred_at: At
    recorded_at: At
    recorded_by: str


class FeedLots(api.Model):
    lots: list[FeedLot]
    next_cursor: str | None


class FeedIntake(api.Model):
    """`parent_event_id` is the import or the silo's reading that it was made from.

    `batch_id` is the batch that was named, or that was in the barn on the local day. `recorded_by`
    names the key that it was posted with; it is null if a device told it.

    `quantity_kg` is null if one was recorded that is no number, before there was a bound.
    """

    intake_id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str | None
    source: Source
    feed_lot_id: str | None
    quantity_kg: float | None
    occurred_at: At
    recorded_at: At
    parent_event_id: UUID | None
    clock_suspect: bool
    batch_id: str | None
    recorded_by: str | None


class FeedIntakes(api.Model):
    intakes: list[FeedIntake]
    next_cursor: str | None


Rows = Callable[[db.Connection, Mapping[str, Any]], Awaitable[list[dict[str, Any]]]]
LotBody = BodyOf(LotReceived, what="a lot", max_bytes=MAX_BYTES, root="$", message=NOT_STORED)
IntakeBody = BodyOf(EdgeIntakePosted, what="an intake", max_bytes=MAX_BYTES)
KIND = posting.Kind("feed.intake.add", store.find_replaced, store.add_posted)
CONFLICT = {409: "CONFLICT: the event_id or Idempotency-Key was used for something else."}


class Api(api.Routes):
    def __init__(self, pool: db.Pool) -> None:
        self.pool = pool

    @route("POST", LOTS, operation_id="postFeedLot", status_code=201, responses=CONFLICT)
    async def post_lot(
        self,
        request: Request,
        caller: access.Operator,
        body: Annotated[JsonBody[LotReceived], Depends(LotBody)],
        idempotency_key: Annotated[str | None, api.IDEMPOTENCY_KEY] = None,
    ) -> FeedLot:
        """A lot of feed was delivered.

        For operators. The response is the lot: stored, and waiting to be sent to the cloud. The
        same event_id or Idempotency-Key with the same body has the same answer and no second
        effect.
        """
        raw = await body.raw()
        received = body.decode(raw)
        caller.tenant(received.tenant_id)
        row = await receive_lot(
            self.pool,
            received,
            raw,
            by=caller.name,
            key=idempotency_key,
            trace_id=http.trace_id(request),
        )
        return FeedLot(**row)

    @route(
        "POST",
        INTAKES,
        FeedIntake,
        operation_id="postFeedIntake",
        status_code=201,
        responses=posting.ERRORS,
    )
    async def post_intake(
        self,
        request: Request,
        caller: access.Operator,
        body: Annotated[JsonBody[EdgeIntakePosted], Depends(IntakeBody)],
        idempotency_key: api.IdempotencyKey,
    ) -> Any:
        """Feed was taken in.

        For operators. The response is the intake: stored, and waiting to be sent to the cloud. The
        same Idempotency-Key with the same body has the same answer and no second effect. A
        correction is a new intake that names the old one in `replaces`.
        """
        event = await posting.post(
            self.pool, KIND, body, request=request, caller=caller, key=idempotency_key
        )
        async with self.pool.connection(timeout=5.0) as connection:
            intake = await store.find_intake(connection, event.tenant_id, event.event_id)
        if intake is None:
            raise HttpError(404, f"the intake {event.event_id} was removed by age since")
        return intake

    @route("GET", LOTS, FeedLots, operation_id="getFeedLots", responses={200: api.CSV})
    async def get_lots(
        self, request: Request, caller: access.Viewer, query: Annotated[FeedFilter, Query()]
    ) -> Any:
        """Lots of feed, newest first."""
        rows = await self._page(caller, query, store.lots)
        return api.table(request, query, "lots", store.LOT, rows)

    @route("GET", INTAKES, FeedIntakes, operation_id="getFeedIntakes", responses={200: api.CSV})
    async def get_intakes(
        self, request: Request, caller: access.Viewer, query: Annotated[FeedFilter, Query()]
    ) -> Any:
        """Feed taken in, newest first."""
        rows = await self._page(caller, query, store.intakes)
        return api.table(request, query, "intakes", store.INTAKE, rows, key="intake_id")

    async def _page(
        self, caller: access.Caller, query: FeedFilter, select: Rows
    ) -> list[dict[str, Any]]:
        wanted = {**query.page(), "tenant": caller.tenant(query.tenant)}
        async with self.pool.connection(timeout=5.0) as connection:
            return await select(connection, wanted)


async def receive_lot(
    pool: db.Pool, received: LotReceived, raw: bytes, *, by: str, key: str | None, trace_id: str
) -> dict[str, Any]:
    """Store a lot, its event and who entered it in one transaction, or none; answers a repeat.

    Raises HttpError 400 for an unknown tenant and a moment in the future, 409 for an id or key of
    something else.
    """
    now = datetime.now(UTC)
    if reason := postings.future(received.occurred_at, now):
        details = [{"field": "$.occurred_at", "reason": reason}]
        raise HttpError(400, NOT_STORED, details=details)
    event = rules.lot_event(received, raw, event_id=ids.new(), trace_id=trace_id, now=now)
    new = store.Lot(
        event=event,
        feed_lot_id=received.feed_lot_id,
        quantity_kg=received.quantity_kg,
        recorded_by=by,
        idempotency_key=key,
        content_hash=rules.lot_hash(received),
    )
    async with db.transaction(pool) as tx:
        await _require_tenant(tx, event.tenant_id)
        is_new = await store.add_lot(tx, new)
        if is_new:
            await _append_to_outbox(tx, new)
        row = await _known_lot(tx, new)
    _count("new" if is_new else "repeated", event)
    return row


def _count(outcome: str, event: BusEvent) -> None:
    RECEIVED.labels(outcome=outcome).inc()
    log.get("edge-feed-intake").info(
        f"feed.lot_{outcome}",
        event_id=str(event.event_id),
        event_type=event.event_type,
        trace_id=event.trace_id,
    )


async def _require_tenant(tx: db.Connection, tenant_id: str) -> None:
    """Raises HttpError 400 if nobody here has it: a typing error must not reach the cloud."""
    if not await registry.is_known_tenant(tx, tenant_id):
        reason = f"no device or farm of tenant {tenant_id!r} is known at this edge"
        raise HttpError(400, NOT_STORED, details=[{"field": "$.tenant_id", "reason": reason}])


async def _append_to_outbox(tx: db.Connection, new: store.Lot) -> None:
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


async def _known_lot(tx: db.Connection, new: store.Lot) -> dict[str, Any]:
    """The row of this id and key. Raises HttpError 409 if it is not what was sent now."""
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
