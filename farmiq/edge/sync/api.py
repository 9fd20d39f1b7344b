"""The outbox over HTTP: how delivery goes (viewers), and moving what is stuck (admins)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import Response
from msgspec import Meta

from farmiq.edge import access
from farmiq.edge.sync import handlers, rules
from farmiq.edge.sync.monitor import Monitor
from farmiq.edge.sync.rules import State
from farmiq.messages.kinds import require_utc
from farmiq.plumbing import db, deadletters, http
from farmiq.plumbing.http import HttpError

STATUS = "/api/v1/sync/status"
OUTBOX = "/api/v1/sync/outbox"
REDRIVE = "/api/v1/sync/redrive"
RELEASE = "/api/v1/sync/unclaim-stuck"

_MAX_BODY = 1024 * 1024
_MAX_LISTED = 500

# No NUL: PostgreSQL cannot look for one.
Word = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00]*$")]
Moment = Annotated[datetime, Meta(tz=True)]


class OutboxChoice(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which rows: by ids, by what they have in common, or `all`. At most `limit`, oldest first."""

    ids: Annotated[list[UUID], Meta(min_length=1, max_length=handlers.MAX_ROWS)] | None = None
    tenant_id: Word | None = None
    event_type: Word | None = None
    dlq_reason: Word | None = None
    last_error_code: Word | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    all: bool = False
    limit: Annotated[int, Meta(ge=1, le=handlers.MAX_ROWS)] = 1000
    dry_run: bool = False

    def __post_init__(self) -> None:
        for moment in (self.created_after, self.created_before):
            require_utc(moment)

    def chosen(self) -> dict[str, Any]:
        """Raises HttpError 400 if nothing was chosen: everything has to be asked for by name."""
        given = msgspec.structs.asdict(self)
        chosen = {name: value for name, value in given.items() if name in handlers.TABLE.conditions}
        if not self.all and all(value is None for value in chosen.values()):
            raise HttpError(400, 'say which rows: ids, a filter, or "all": true')
        return chosen


class OutboxMoved(msgspec.Struct, kw_only=True):
    """What was moved, or with `dry_run` what would have been."""

    count: int
    ids: list[UUID]
    dry_run: bool


class Listed(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The query of a listing; `after` is the last id of the page before."""

    status: State | None = None
    tenant_id: Word | None = None
    event_type: Word | None = None
    dlq_reason: Word | None = None
    last_error_code: Word | None = None
    after: UUID | None = None
    limit: Annotated[int, Meta(ge=1, le=_MAX_LISTED)] = 100


class OutboxRow(msgspec.Struct, kw_only=True):
    """A row without its payload."""

    id: UUID
    tenant_id: str
    farm_id: str | None
    barn_id: str | None
    device_id: str | None
    session_id: UUID | None
    event_type: str
    occurred_at: datetime | None
    trace_id: str | None
    payload_size_bytes: int | None
    status: State
    priority: int
    attempt_count: int
    last_attempt_at: datetime | None
    next_attempt_at: datetime
    claimed_by: str | None
    claimed_at: datetime | None
    lease_expires_at: datetime | None
    last_error_code: str | None
    last_error_message: str | None
    failed_at: datetime | None
    dlq_reason: str | None
    created_at: datetime
    updated_at: datetime


class OutboxPage(msgspec.Struct, kw_only=True):
    """`next` is the `after` of the next page; null on the last one."""

    rows: list[OutboxRow]
    next: UUID | None


class SyncTenant(msgspec.Struct, kw_only=True):
    """Delivery of one tenant; `live_priority` is above 0 while a backlog drains."""

    tenant_id: str
    state: Literal["idle", "delivering", "draining", "paused"]
    waiting: int
    pending: int
    claimed: int
    sending: int
    dlq: int
    failed: int
    oldest_s: float
    consecutive_failures: int
    paused_until: datetime | None
    last_error_code: str | None
    last_error_message: str | None
    last_acked_at: datetime | None
    last_acked_event_id: UUID | None
    last_sent_batch_id: str | None
    live_priority: int


class SyncStatus(msgspec.Struct, kw_only=True):
    """`eta_s` is null while the backlog does not fall; `rate_per_s` is this forwarder's own."""

    waiting: int
    dlq: int
    oldest_s: float
    rate_per_s: float
    eta_s: float | None
    tenants: list[SyncTenant]


Move = Callable[..., Awaitable[list[UUID]]]


def add_to(app: FastAPI, pool: db.Pool, monitor: Monitor) -> None:
    """The four routes; each asks who calls before it reads anything."""

    async def get_status(request: Request) -> Response:
        caller = await access.require(request, pool, "viewer", by_tenant=True)
        async with _transaction(pool) as tx:
            tenants = [
                tenant for tenant in await handlers.status(tx) if caller.reaches(tenant.tenant_id)
            ]
        return _json(_status(tenants, rate=monitor.rate, eta_s=monitor.eta_s))

    async def get_outbox(request: Request) -> Response:
        caller = await access.require(request, pool, "viewer", by_tenant=True)
        selection = _query(request)
        chosen = {
            "statuses": [selection.status] if selection.status else list(rules.STATES),
            "tenant_id": caller.tenant(selection.tenant_id),
            "event_type": selection.event_type,
            "dlq_reason": selection.dlq_reason,
            "last_error_code": selection.last_error_code,
            "after": selection.after,
        }
        async with _transaction(pool) as tx:
            rows = await deadletters.ls(tx, handlers.TABLE, chosen, limit=selection.limit)
        outbox_rows = [msgspec.convert(row, OutboxRow) for row in rows]
        return _json(
            OutboxPage(
                rows=outbox_rows,
                next=outbox_rows[-1].id if len(outbox_rows) == selection.limit else None,
            )
        )

    async def move(request: Request, by: Move) -> Response:
        caller = await access.require(request, pool, "admin", by_tenant=True)
        selection = await _body(request)
        chosen = selection.chosen() | {"tenant_id": caller.tenant(selection.tenant_id)}
        async with _transaction(pool) as tx:
            moved = await by(
                tx, chosen, limit=selection.limit, actor=caller.name, dry_run=selection.dry_run
            )
        return _json(OutboxMoved(count=len(moved), ids=moved, dry_run=selection.dry_run))

    async def post_redrive(request: Request) -> Response:
        return await move(request, handlers.redrive)

    async def post_release(request: Request) -> Response:
        return await move(request, handlers.release)

    app.add_route(STATUS, get_status, methods=["GET"])
    app.add_route(OUTBOX, get_outbox, methods=["GET"])
    app.add_route(REDRIVE, post_redrive, methods=["POST"])
    app.add_route(RELEASE, post_release, methods=["POST"])


def _status(
    tenants: list[handlers.TenantStatus], *, rate: float, eta_s: float | None
) -> SyncStatus:
    return SyncStatus(
        waiting=sum(tenant.waiting for tenant in tenants),
        dlq=sum(tenant.dlq for tenant in tenants),
        oldest_s=max((tenant.oldest_s for tenant in tenants), default=0.0),
        rate_per_s=round(rate, 1),
        eta_s=eta_s,
        tenants=[
            SyncTenant(state=_state(tenant), waiting=tenant.waiting, **asdict(tenant))
            for tenant in tenants
        ],
    )


def _state(tenant: handlers.TenantStatus) -> Literal["idle", "delivering", "draining", "paused"]:
    if not tenant.waiting:
        return "idle"
    if tenant.consecutive_failures:
        return "paused"
    return "draining" if tenant.live_priority else "delivering"


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def _body(request: Request) -> OutboxChoice:
    raw = await http.body(request, what="a choice", max_bytes=_MAX_BODY, kind=None)
    try:
        return msgspec.json.decode(raw or b"{}", type=OutboxChoice)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _not_valid("body", error) from None


def _query(request: Request) -> Listed:
    given = dict(request.query_params)
    try:
        return msgspec.convert(given, Listed, strict=False)
    except msgspec.ValidationError as error:
        raise _not_valid("query", error) from None


def _not_valid(field: str, error: Exception) -> HttpError:
    reason = str(error).encode(errors="replace").decode()[:500]
    return HttpError(400, "the request is not valid", details=[{"field": field, "reason": reason}])


@asynccontextmanager
async def _transaction(pool: db.Pool) -> AsyncIterator[db.Connection]:
    try:
        async with db.transaction(pool) as tx:
            yield tx
    except db.UNAVAILABLE as error:
        raise HttpError(503, "the edge's database is away", retry_after_s=5) from error
