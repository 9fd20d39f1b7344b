"""The HTTP API of ingress: quarantine, alerts, losses, gaps. Every route needs a key."""

from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import Depends, Path, Query
from msgspec import Meta
from pydantic import Field

from farmiq import api
from farmiq.api import At, BodyOf, JsonBody, Text, route
from farmiq.edge import access, alerts, losses
from farmiq.edge.alerts import Severity
from farmiq.edge.ingress import jobs, quarantine, rules, store
from farmiq.edge.ingress.quarantine import Handle, Quarantine
from farmiq.edge.ingress.rules import Gap
from farmiq.edge.ingress.store import Boot
from farmiq.plumbing import db, deadletters, http
from farmiq.plumbing.http import HttpError

QUARANTINE = "/api/v1/quarantine"
ALERTS = "/api/v1/alerts"
MAX_ON_A_PAGE = 1000
MAX_GAPS_OF_A_DEVICE = 64
MAX_BODY_BYTES = 1024 * 1024
# A request must end while the caller waits; the command is for more.
MAX_PER_REQUEST = 5_000
_MAX_HOURS = 24.0 * 366 * 100

# --- parameters and bodies

Hours = Annotated[float, Field(ge=0, le=_MAX_HOURS, allow_inf_nan=False)]
HoursGiven = Annotated[float, Meta(ge=0, le=_MAX_HOURS)]


class Page(api.Filter):
    """One page, newest first; `before` is the `next` of the page before."""

    before: UUID | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_ON_A_PAGE)] = 100


class QuarantineFilter(Page):
    kind: rules.Kind | None = None
    reason: Text | None = None
    topic: Text | None = None
    older_than_hours: Hours | None = None
    newer_than_hours: Hours | None = None


class AlertFilter(Page):
    closed: bool = False


class Chosen(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which messages: by `ids`, or by what they have in common. `all` means every one."""

    ids: list[UUID] | None = None
    kind: rules.Kind | None = None
    reason: str | None = None
    topic: str | None = None
    older_than_hours: HoursGiven | None = None
    newer_than_hours: HoursGiven | None = None
    all: bool = False
    limit: Annotated[int, Meta(ge=1, le=MAX_PER_REQUEST)] = MAX_PER_REQUEST
    dry_run: bool = False

    def filter(self) -> deadletters.Filter:
        """Raises HttpError 400 if nothing is chosen."""
        given = msgspec.structs.asdict(self)
        chosen = {name: given[name] or None for name in ("ids", "kind", "reason", "topic")}
        chosen |= {name: given[name] for name in ("older_than_hours", "newer_than_hours")}
        if not self.all and all(value is None for value in chosen.values()):
            raise HttpError(400, 'choose some by ids or a filter, or say "all": true')
        return chosen


class Closing(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An open alert, as the list of alerts names it."""

    kind: str
    subject: str


# Any content type will do: the callers are programs with a key, not browsers.
ChosenBody = Annotated[
    JsonBody[Chosen], Depends(BodyOf(Chosen, max_bytes=MAX_BODY_BYTES, content_type=None))
]
ClosingBody = Annotated[
    JsonBody[Closing], Depends(BodyOf(Closing, max_bytes=MAX_BODY_BYTES, content_type=None))
]

# --- responses


class QuarantineRow(api.Model):
    """A message that could not be taken. `truncated`: its bytes were cut, it cannot be redriven."""

    quarantine_id: UUID
    topic: str
    kind: rules.Kind
    gist: str
    reasons: list[str]
    raw_size_bytes: int
    truncated: bool
    received_count: int
    first_received_at: At
    last_received_at: At
    redriven_count: int
    last_redriven_at: At | None


class QuarantineCount(api.Model):
    kind: rules.Kind
    reason: str
    rows: int
    messages: int


class QuarantinePage(api.Model):
    """`next` is the `before` of the next page; null on the last. Totals are of all messages."""

    rows: list[QuarantineRow]
    next: UUID | None
    counts: list[QuarantineCount]
    total_rows: int
    total_bytes: int


class QuarantinedMessage(QuarantineRow):
    raw_base64: str


class QuarantineResult(api.Model):
    """What became of the chosen ones; `gone` ones were discarded, or taken by somebody else."""

    chosen: int
    truncated: int
    conflicts: int
    accepted: int
    refused: int
    gone: int
    dry_run: bool


class EdgeAlert(api.Model):
    alert_id: UUID
    kind: str
    subject: str
    severity: Severity
    message: str
    seen_count: int
    raised_at: At
    last_seen_at: At
    closed_at: At | None
    closed_by: str | None


class EdgeAlerts(api.Model):
    alerts: list[EdgeAlert]
    next: UUID | None


class AlertClosed(api.Model):
    closed: bool


class Loss(api.Model):
    """What was dropped on purpose, by a device or by this edge."""

    loss_id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    event_class: Annotated[str, Field(alias="class")]
    count: int
    first_seq: int
    last_seq: int
    reason: str
    occurred_at: At
    recorded_at: At


class LossTotal(api.Model):
    tenant_id: str
    event_class: Annotated[str, Field(alias="class")]
    count: int


class Losses(api.Model):
    losses: list[Loss]
    next: UUID | None
    totals: list[LossTotal]


class DeviceGaps(api.Model):
    """`not_listed` of the missing numbers lie in lower gaps than those that are listed."""

    tenant_id: str
    device_id: str
    highest_seq: int
    missing: int
    missing_since: At | None
    not_listed: int
    gaps: list[Gap]


class AllGaps(api.Model):
    devices: list[DeviceGaps]


# --- routes


class Api(api.Routes):
    """The routes; `handle` is handlers.handle, which a redrive uses."""

    def __init__(self, pool: db.Pool, handle: Handle) -> None:
        self.pool, self._handle = pool, handle

    @route("GET", QUARANTINE, QuarantinePage)
    async def quarantine(
        self, _: access.ViewerOfAll, query: Annotated[QuarantineFilter, Query()]
    ) -> Any:
        """Messages that could not be taken, newest first, and how many by reason."""
        chosen, table = query.model_dump(exclude={"before", "limit"}), quarantine.TABLE
        async with self.pool.connection(timeout=5.0) as connection:
            rows = await deadletters.ls(
                connection, table, {**chosen, "before": query.before}, limit=query.limit
            )
            counts = await deadletters.counts(connection, table, chosen)
            total, size = await quarantine.size(connection)
        following = _next(rows, query, "quarantine_id")
        totals = {"total_rows": total, "total_bytes": size}
        return {"rows": rows, "next": following, "counts": counts, **totals}

    @route(
        "GET",
        f"{QUARANTINE}/{{quarantine_id}}",
        QuarantinedMessage,
        responses={400: http.ERRORS[400]},
    )
    async def quarantined(
        self,
        _: access.ViewerOfAll,
        quarantine_id: Annotated[str, Path(json_schema_extra={"format": "uuid"})],
    ) -> Any:
        """One of them, with its bytes."""
        try:
            row_id = UUID(quarantine_id)
        except ValueError:
            raise api.invalid(("quarantine_id", "not a UUID")) from None
        async with self.pool.connection(timeout=5.0) as connection:
            row = await deadletters.show(connection, quarantine.TABLE, row_id, payload="raw")
        if row is None:
            raise HttpError(404, f"there is no message {row_id} in quarantine")
        raw_base64 = b64encode(row.pop("raw")).decode()
        return {**row, "raw_base64": raw_base64}

    @route("POST", f"{QUARANTINE}/redrive", QuarantineResult)
    async def redrive(self, caller: access.OperatorOfAll, body: ChosenBody) -> Any:
        """Handle some messages again."""
        return await self._move(caller, await body.read(), deadletters.redrive)

    @route("POST", f"{QUARANTINE}/discard", QuarantineResult)
    async def discard(self, caller: access.OperatorOfAll, body: ChosenBody) -> Any:
        """Give some up for good, onto the loss ledger."""
        return await self._move(caller, await body.read(), deadletters.discard)

    async def _move(
        self,
        caller: access.Caller,
        order: Chosen,
        move: Callable[..., Awaitable[deadletters.Result]],
    ) -> dict[str, Any]:
        by = Quarantine(self._handle, f"key {caller.name}", f"discarded by {caller.name}")
        result = await move(self.pool, by, order.filter(), limit=order.limit, dry_run=order.dry_run)
        return result.described()

    @route("GET", ALERTS, EdgeAlerts)
    async def alerts(self, _: access.ViewerOfAll, query: Annotated[AlertFilter, Query()]) -> Any:
        """What a person should look at, newest first."""
        async with self.pool.connection(timeout=5.0) as connection:
            rows = await alerts.latest(connection, **query.model_dump())
        return {"alerts": rows, "next": _next(rows, query, "alert_id")}

    @route(
        "POST",
        f"{ALERTS}/close",
        AlertClosed,
        responses={404: "NOT_FOUND: No such alert is open."},
    )
    async def close_alert(self, caller: access.OperatorOfAll, body: ClosingBody) -> Any:
        """An alert was dealt with."""
        closing = await body.read()
        async with db.transaction(self.pool) as tx:
            chosen = alerts.Filter(closing.kind, closing.subject, exact=True)
            closed_count = await alerts.close_chosen(tx, chosen, by=f"key {caller.name}")
        if not closed_count:
            raise HttpError(404, f"no open alert {closing.kind!r} of {closing.subject!r}")
        return {"closed": True}

    @route("GET", "/api/v1/losses", Losses)
    async def losses(self, _: access.ViewerOfAll, query: Annotated[Page, Query()]) -> Any:
        """What was dropped on purpose, newest first."""
        async with self.pool.connection(timeout=5.0) as connection:
            rows = await losses.latest(connection, **query.model_dump())
            totals = await losses.totals(connection)
        return {"losses": rows, "next": _next(rows, query, "loss_id"), "totals": totals}

    @route("GET", "/api/v1/devices/gaps", AllGaps, responses={400: http.ERRORS[400]})
    async def gaps(self, _: access.ViewerOfAll) -> Any:
        """Which numbers of which devices are missing."""
        async with self.pool.connection(timeout=5.0) as connection:
            boots = await store.boots(connection)
        devices = [_device(of, device_gaps) for of, device_gaps in jobs.by_device(boots)]
        return {"devices": [device for device in devices if device.missing][:MAX_ON_A_PAGE]}


def _next(rows: list[dict[str, Any]], page: Page, key: str) -> UUID | None:
    return rows[-1][key] if len(rows) == page.limit else None


def _device(boots: list[Boot], device_gaps: list[Gap]) -> DeviceGaps:
    since = [boot.missing_since for boot in boots if boot.missing_since is not None]
    forgotten = sum(boot.forgotten for boot in boots)
    return DeviceGaps(
        tenant_id=boots[0].seen.tenant_id,
        device_id=boots[0].seen.device_id,
        highest_seq=max(boot.seen.spans[-1][1] for boot in boots),
        missing=sum(gap.count for gap in device_gaps) + forgotten,
        missing_since=min(since, default=None),
        not_listed=forgotten + sum(gap.count for gap in device_gaps[:-MAX_GAPS_OF_A_DEVICE]),
        gaps=device_gaps[-MAX_GAPS_OF_A_DEVICE:],
    )
