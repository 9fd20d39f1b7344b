"""The outbox over HTTP: how delivery goes (viewers), and moving what is stuck (admins)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import Depends, Query
from msgspec import Meta
from pydantic import Field

from farmiq import api
from farmiq.api import At, BodyOf, JsonBody, route
from farmiq.edge import access
from farmiq.edge.sync import handlers, rules
from farmiq.edge.sync.handlers import TenantStatus
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
_MAX_WORD = 256

# No NUL: PostgreSQL cannot look for one.
Word = Annotated[str, Meta(min_length=1, max_length=_MAX_WORD, pattern=r"^[^\x00]*$")]
QueryWord = Annotated[api.Text, Field(max_length=_MAX_WORD)]
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


OrderBody = Annotated[
    JsonBody[OutboxChoice],
    Depends(BodyOf(OutboxChoice, what="a choice", max_bytes=_MAX_BODY, content_type=None)),
]


class OutboxMoved(api.Model):
    """What was moved, or with `dry_run` what would have been."""

    count: int
    ids: list[UUID]
    dry_run: bool


class OutboxFilter(api.Filter):
    """Which events; `after` is the last id of the page before."""

    status: State | None = None
    tenant_id: QueryWord | None = None
    event_type: QueryWord | None = None
    dlq_reason: QueryWord | None = None
    last_error_code: QueryWord | None = None
    after: UUID | None = None
    limit: Annotated[int, Field(ge=1, le=_MAX_LISTED)] = 100


class OutboxRow(api.Model):
    """A row without its payload."""

    id: UUID
    tenant_id: str
    farm_id: str | None
    barn_id: str | None
    device_id: str | None
    session_id: UUID | None
    event_type: str
    occurred_at: At | None
    trace_id: str | None
    payload_size_bytes: int | None
    status: State
    priority: int
    attempt_count: int
    last_attempt_at: At | None
    next_attempt_at: At
    claimed_by: str | None
    claimed_at: At | None
    lease_expires_at: At | None
    last_error_code: str | None
    last_error_message: str | None
    failed_at: At | None
    dlq_reason: str | None
    created_at: At
    updated_at: At


class OutboxPage(api.Model):
    """`next` is the `after` of the next page; null on the last one."""

    rows: list[OutboxRow]
    next: UUID | None


class SyncStatus(api.Model):
    """`eta_s` is null while the backlog does not fall; `rate_per_s` is this forwarder's own."""

    waiting: int
    dlq: int
    oldest_s: float
    rate_per_s: float
    eta_s: float | None
    tenants: list[TenantStatus]


@dataclass
class Api(api.Routes):
    pool: db.Pool
    monitor: Monitor

    @route("GET", STATUS, responses={400: http.ERRORS[400]})
    async def status(self, caller: access.Viewer) -> SyncStatus:
        """How delivery to the cloud goes."""
        async with db.transaction(self.pool) as tx:
            tenants = [
                tenant for tenant in await handlers.status(tx) if caller.reaches(tenant.tenant_id)
            ]
        return SyncStatus(
            waiting=sum(tenant.waiting for tenant in tenants),
            dlq=sum(tenant.dlq for tenant in tenants),
            oldest_s=max((tenant.oldest_s for tenant in tenants), default=0.0),
            rate_per_s=round(self.monitor.rate, 1),
            eta_s=self.monitor.eta_s,
            tenants=tenants,
        )

    @route("GET", OUTBOX, OutboxPage)
    async def outbox(self, caller: access.Viewer, query: Annotated[OutboxFilter, Query()]) -> Any:
        """Events of the outbox, newest first."""
        chosen = {
            **query.model_dump(exclude={"status", "limit"}),
            "statuses": [query.status] if query.status else list(rules.STATES),
            "tenant_id": caller.tenant(query.tenant_id),
        }
        async with db.transaction(self.pool) as tx:
            rows = await deadletters.ls(tx, handlers.TABLE, chosen, limit=query.limit)
        return {"rows": rows, "next": rows[-1]["id"] if len(rows) == query.limit else None}

    @route("POST", REDRIVE)
    async def redrive(self, caller: access.Admin, body: OrderBody) -> OutboxMoved:
        """Send events of the dlq again (for admins)."""
        return await self._move(caller, await body.read(), handlers.redrive)

    @route("POST", RELEASE)
    async def release(self, caller: access.Admin, body: OrderBody) -> OutboxMoved:
        """Free events held beyond their lease (for admins)."""
        return await self._move(caller, await body.read(), handlers.release)

    async def _move(
        self,
        caller: access.Caller,
        order: OutboxChoice,
        move: Callable[..., Awaitable[list[UUID]]],
    ) -> OutboxMoved:
        chosen = order.chosen() | {"tenant_id": caller.tenant(order.tenant_id)}
        async with db.transaction(self.pool) as tx:
            moved = await move(
                tx, chosen, limit=order.limit, actor=caller.name, dry_run=order.dry_run
            )
        return OutboxMoved(count=len(moved), ids=moved, dry_run=order.dry_run)
