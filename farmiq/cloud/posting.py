"""Events that people post over HTTP: stored with their key, then put on the bus.

The event, its key and who posted it are one row, committed before the answer. A job publishes what
is not on the bus yet, so a bus that is away delays an event and loses none; a crash between the
publishing and its commit publishes it again under the same id, which consumers ignore (C-10).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import prometheus_client
import psycopg

from farmiq import api, crash
from farmiq.api import JsonBody
from farmiq.cloud import publishing
from farmiq.cloud.bus import TOPOLOGY
from farmiq.cloud.identity import sign_in
from farmiq.cloud.identity.people import People, Visit
from farmiq.cloud.sink import Sink
from farmiq.config import CloudSettings
from farmiq.farm import idempotency, postings
from farmiq.farm.idempotency import KeyUsedError, ReplacedError
from farmiq.farm.postings import Body, IntakePosted, LotPosted, Posted
from farmiq.messages import feed
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, http, ids, log
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.schedule import Job

EVERY_S = 0.5
BUS_DOWN_S = 2.0
PUBLISH_WITHIN_S = 10.0
MAX_EVENTS = 500


@dataclass(frozen=True, slots=True)
class Family:
    """Where a family's events are, what they are called by, and how one names what it replaces."""

    table: str
    name: str
    replaces: str


BARN = Family("barn_events", "record_id", "payload ->> 'replaces'")
FEED = Family("feed_events", "event_id::text", "fn_replaced_event(payload)::text")
_FAMILIES = {"barn": BARN, "feed": FEED}

POSTED = prometheus_client.Counter(
    "farmiq_posted_events_total", "Events that people posted", ["event_type", "outcome"]
)

ROLE = "operator"
ERRORS = {
    403: "FORBIDDEN: the person's role does not reach.",
    404: "NOT_FOUND: the company has no such barn, batch, lot, record or event.",
    409: "CONFLICT: the Idempotency-Key was used for something else, or what is to be replaced is "
    "replaced already.",
    429: http.ERRORS[429],
}


async def post(people: People, visit: Visit, body: JsonBody[Any], key: str) -> BusEvent:
    """What a POST does: the event of the body, stored and committed. Raises HttpError."""
    raw = await body.raw()
    async with people.caller(*visit, least=ROLE) as caller:
        content = body.decode(raw)
        return await accept(
            await caller.become_service(),
            content,
            raw,
            tenant_id=caller.tenant_id,
            by=caller.email,
            key=key,
            trace_id=http.trace_id(visit.request),
        )


async def accept(
    tx: db.Connection, body: Body, raw: bytes, *, tenant_id: str, by: str, key: str, trace_id: str
) -> BusEvent:
    """Store a posting to be published; returns the event of its key, also if it is a repeat.

    Raises HttpError 400, 404 or 409; then the transaction must be rolled back.
    """
    now = datetime.now(UTC)
    if reason := postings.future(body, now):
        raise api.invalid(("occurred_at", reason))
    posted = postings.posted(
        body,
        raw,
        tenant_id=tenant_id,
        by=by,
        key=key,
        event_id=ids.new(),
        trace_id=trace_id,
        now=now,
    )
    try:
        event, is_new = await idempotency.claim(tx, posted)
    except (KeyUsedError, ReplacedError) as error:
        POSTED.labels(event_type=posted.event.event_type, outcome="conflict").inc()
        raise HttpError(409, str(error)) from None
    except psycopg.errors.ForeignKeyViolation:
        raise _missing("tenant_id", f"there is no company {tenant_id!r}") from None
    if is_new:
        await _check(tx, posted, body)
    crash.here("posting.before_commit")
    POSTED.labels(event_type=event.event_type, outcome="new" if is_new else "repeated").inc()
    return event


async def _check(tx: db.Connection, posted: Posted, body: Body) -> None:
    """Raises HttpError 404 for what the company does not have, 409 for what is replaced."""
    tenant_id = posted.event.tenant_id
    await _check_place(tx, tenant_id, body)
    if batch_id := getattr(body, "batch_id", None):
        await _check_batch(tx, tenant_id, batch_id, body)
    if isinstance(body, IntakePosted) and body.feed_lot_id:
        await _check_lot(tx, tenant_id, body.feed_lot_id)
    if isinstance(body, LotPosted) and body.feed_product_id:
        await _check_product(tx, tenant_id, body.feed_product_id)
    if posted.replaces:
        await _check_replaced(tx, posted)


async def _check_place(tx: db.Connection, tenant_id: str, body: Body) -> None:
    known = await db.fetch_value(
        tx,
        "select exists (select from barns where tenant_id = %s and farm_id = %s and barn_id = %s)",
        tenant_id,
        body.farm_id,
        body.barn_id,
    )
    if not known:
        raise _missing("barn_id", f"there is no barn {body.barn_id!r} of a farm {body.farm_id!r}")


async def _check_batch(tx: db.Connection, tenant_id: str, batch_id: str, body: Body) -> None:
    rows = await db.fetch_all(
        tx,
        "select farm_id, barn_id from batches where tenant_id = %s and batch_id = %s",
        tenant_id,
        batch_id,
    )
    if not rows:
        raise _missing("batch_id", f"there is no batch {batch_id!r}")
    if rows[0] != (body.farm_id, body.barn_id):
        raise api.invalid(("batch_id", f"the batch {batch_id!r} is in {'/'.join(rows[0])}"))


async def _check_lot(tx: db.Connection, tenant_id: str, feed_lot_id: str) -> None:
    """The lot may not be stored by its service yet: what was posted counts too."""
    known = await db.fetch_value(
        tx,
        "select exists (select from feed_events "
        "where tenant_id = %s and feed_lot_id = %s and event_type = %s) "
        "or exists (select from posted_events "
        "where tenant_id = %s and subject = %s and event_type = %s)",
        *(tenant_id, feed_lot_id, feed.LOT_RECEIVED) * 2,
    )
    if not known:
        raise _missing("feed_lot_id", f"no lot {feed_lot_id!r} was received; post it first")


async def _check_product(tx: db.Connection, tenant_id: str, feed_product_id: str) -> None:
    known = await db.fetch_value(
        tx,
        "select exists (select from feed_products where tenant_id = %s and feed_product_id = %s)",
        tenant_id,
        feed_product_id,
    )
    if not known:
        raise _missing("feed_product_id", f"there is no feed product {feed_product_id!r}")


async def _check_replaced(tx: db.Connection, posted: Posted) -> None:
    """What is named must be there, of the same type, and not replaced by an event of an edge."""
    event = posted.event
    of = _FAMILIES[event.event_type.partition(".")[0]]
    named = (event.tenant_id, posted.replaces)
    known, replaced_by = (
        await db.fetch_all(
            tx,
            f"""
            select
              exists (select from {of.table}
                where tenant_id = %s and {of.name} = %s and event_type = %s)
              or exists (select from posted_events
                where tenant_id = %s and event_id::text = %s and event_type = %s),
              (select event_id from {of.table}
                where tenant_id = %s and {of.replaces} = %s limit 1)
            """,  # noqa: S608 - our own words
            *(*named, event.event_type) * 2,
            *named,
        )
    )[0]
    if not known:
        raise _missing("replaces", f"there is no {event.event_type} {posted.replaces!r}")
    if replaced_by:
        raise HttpError(409, f"{posted.replaces} is replaced already, by {replaced_by}")


def _missing(field: str, reason: str) -> HttpError:
    return HttpError(404, reason, details=[{"field": field, "reason": reason}])


def publish_job(pool: db.Pool, publisher: amqp.Publisher, *event_types: str) -> Job:
    """Publishes what was posted of these types; a bus that is away is tried again."""

    async def publish() -> dict[str, object]:
        try:
            return {"count": await publish_pending(pool, publisher, *event_types)}
        except amqp.BusDownError as error:
            log.get("posting").warning("posting.bus_away", error=db.first_line(error))
            await asyncio.sleep(BUS_DOWN_S)
            return {}

    return Job("posting.publish", EVERY_S, publish)


async def publish_pending(pool: db.Pool, publisher: amqp.Publisher, *event_types: str) -> int:
    """Publish what is not on the bus yet; returns how many. Raises amqp.BusDownError."""
    async with db.transaction(pool) as tx:
        rows = await db.fetch_all(
            tx,
            """
            select tenant_id, idempotency_key, event::text from posted_events
            where published_at is null and event_type = any(%s)
            order by posted_at limit %s for update skip locked
            """,
            list(event_types),
            MAX_EVENTS,
        )
        if not rows:
            return 0
        events = [msgspec.json.decode(event, type=BusEvent) for _, _, event in rows]
        await publishing.publish(publisher, events, timeout_s=PUBLISH_WITHIN_S)
        crash.here("posting.after_publish")
        await tx.execute(
            """
            update posted_events p set published_at = fn_now()
            from unnest(%s::text[], %s::text[]) as k(tenant_id, idempotency_key)
            where p.tenant_id = k.tenant_id and p.idempotency_key = k.idempotency_key
            """,
            ([row[0] for row in rows], [row[1] for row in rows]),
        )
    return len(rows)


Make = Callable[[db.Pool, sign_in.SignIns], api.Routes]


async def run(settings: CloudSettings, server: http.HttpServer, of: Sink, make: Make) -> None:
    """The service of a sink whose events people post too: consume, serve, publish."""
    url = settings.db_url.get_secret_value()
    name = of.work.service
    async with (
        db.pool(url, name=f"{name}-api", min_size=0, timeout_s=3.0) as pool,
        amqp.publisher(
            settings.amqp_url.get_secret_value(), name=name, topology=TOPOLOGY, tls=settings.tls
        ) as publisher,
        asyncio.TaskGroup() as group,
    ):
        sign_ins = sign_in.SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
        make(pool, sign_ins).add_to(server.app)
        group.create_task(of.run(settings, server))
        job = publish_job(pool, publisher, *of.work.event_types)
        group.create_task(schedule.run_repeatedly(job))
