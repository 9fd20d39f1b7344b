"""What people post at the edge: row, event for the cloud, key and audit in one transaction."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from fastapi import Request
from prometheus_client import Counter

from farmiq import api, crash
from farmiq.edge import access, audit, batches, outbox, registry
from farmiq.edge.batches import Placed
from farmiq.farm import heads, idempotency, postings
from farmiq.farm.postings import Posted
from farmiq.messages.bus import BusEvent
from farmiq.messages.wording import worded
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.http import HttpError

POSTED = Counter(
    "farmiq_edge_posted_events_total", "Events posted to the edge", ["event_type", "outcome"]
)
ERRORS = {
    404: "NOT_FOUND: the edge knows no such tenant or batch, or not what is to be replaced.",
    409: "CONFLICT: the Idempotency-Key was used for something else, or what is to be replaced is "
    "replaced already.",
}


class Replaced(NamedTuple):
    """What a correction names, as it is stored here, and what replaces it already."""

    farm_id: str
    barn_id: str
    batch_id: str | None
    replaced_by: str | None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of posting: how what it replaces is found here, how it is stored, its audit."""

    action: str
    find_replaced: Callable[[db.Connection, Any], Awaitable[Replaced | None]]
    store: Callable[[db.Connection, Posted], Awaitable[None]]


async def post(
    pool: db.Pool,
    kind: Kind,
    body: api.JsonBody[Any],
    *,
    request: Request,
    caller: access.Caller,
    key: str,
) -> BusEvent:
    """What a POST does: the event of its body, stored and committed. Raises HttpError."""
    raw = await body.raw()
    content = body.decode(raw)
    caller.tenant(content.tenant_id)
    trace_id = http.trace_id(request)
    async with db.transaction(pool) as tx:
        return await accept(tx, kind, content, raw, by=caller.name, key=key, trace_id=trace_id)


async def accept(
    tx: db.Connection, kind: Kind, body: Any, raw: bytes, *, by: str, key: str, trace_id: str
) -> BusEvent:
    """Store a posting, its event for the cloud and who entered it; also answers a repeat.

    Raises HttpError 400, 404 or 409; then the transaction must be rolled back.
    """
    now = datetime.now(UTC)
    if reason := postings.future(body, now):
        raise api.invalid(("occurred_at", reason))
    tenant_id = body.tenant_id
    replaced = None
    if body.replaces:
        replaced = await kind.find_replaced(tx, body)
    posted = postings.posted(
        body,
        raw,
        tenant_id=tenant_id,
        by=by,
        key=key,
        event_id=ids.new(),
        trace_id=trace_id,
        now=now,
        batch_id=await _find_batch(tx, body, postings.happened_at(body, now), replaced),
    )
    try:
        event, is_new = await idempotency.claim(tx, posted)
    except (idempotency.KeyUsedError, idempotency.ReplacedError) as error:
        POSTED.labels(event_type=posted.event.event_type, outcome="conflict").inc()
        raise HttpError(409, str(error)) from None
    if is_new:
        await _check(tx, posted, body, replaced)
        await kind.store(tx, posted)
        await outbox.append(tx, [event])
        subject = f"{tenant_id}/{posted.subject}"
        await audit.note(tx, actor=by, action=kind.action, subject=subject, event_id=event.event_id)
        crash.here("edge_posting.before_commit")
    POSTED.labels(event_type=event.event_type, outcome="new" if is_new else "repeated").inc()
    return event


async def _find_batch(
    tx: db.Connection, body: Any, at: datetime, replaced: Replaced | None
) -> str | None:
    """For a body that names no batch: that of what it corrects, else the one in the barn then."""
    if body.batch_id:
        return None
    place = (body.farm_id, body.barn_id)
    if replaced and replaced.batch_id and place == (replaced.farm_id, replaced.barn_id):
        return replaced.batch_id
    (batch_id,) = await batches.at(tx, [Placed(body.tenant_id, *place, at)])
    return batch_id


async def _check(tx: db.Connection, posted: Posted, body: Any, replaced: Replaced | None) -> None:
    """Raises HttpError 404 for what the edge does not know, 409 for what is replaced.

    And 400 for a batch that was not in that barn then, and for more dead than there are animals. A
    batch is only checked if the edge has the cloud's: it works before it ever heard of them.
    """
    event = posted.event
    tenant_id = event.tenant_id
    if not await registry.is_known_tenant(tx, tenant_id):
        reason = worded(
            "no device or farm of tenant %(tenant)s is known here", tenant=repr(tenant_id)
        )
        raise api.missing("tenant_id", reason)
    if body.batch_id and not (replaced and replaced.batch_id == body.batch_id):
        await _check_batch(tx, event, body.batch_id)
    if posted.replaces and replaced is None:
        what = worded(
            "there is no %(kind)s %(quoted)s at this edge",
            kind=event.event_type, quoted=repr(posted.replaces),
        )  # fmt: skip
        raise api.missing("replaces", what)
    if replaced and replaced.replaced_by:
        raise HttpError(
            409,
            worded(
                "%(name)s is replaced already, by %(by)s",
                name=posted.replaces, by=replaced.replaced_by,
            ),
        )  # fmt: skip
    if getattr(body, "record_type", None) in heads.GONE:
        await _check_heads(tx, posted, body.record_type, body.value)


async def _check_batch(tx: db.Connection, event: BusEvent, batch_id: str) -> None:
    if not await batches.has_any(tx, event.tenant_id):
        return
    stay = await batches.stay(tx, event.tenant_id, batch_id, event.occurred_at)
    if stay is None:
        raise api.missing("batch_id", worded("there is no batch %(batch)s", batch=repr(batch_id)))
    if reason := stay.problem(batch_id, event):
        raise api.invalid(("batch_id", reason))


async def _check_heads(tx: db.Connection, posted: Posted, record_type: str, value: float) -> None:
    """By what this edge knows: the cloud may know of more who died, and the figures say so."""
    event = posted.event
    batch_id = msgspec.json.decode(event.payload).get("batch_id")
    if batch_id is None:
        return
    herd = await batches.herd(tx, event.tenant_id, batch_id, event.occurred_at, posted.replaces)
    if herd is None:
        return
    there = heads.left(herd.placed_count, herd.records, herd.on_date)
    if reason := heads.too_many(record_type, value, there):
        raise api.invalid(("value", reason))
