"""Events that people post over HTTP: stored with their key, then put on the bus.

The event, its key and who posted it are one row, committed before the answer. A job publishes what
is not on the bus yet, so a bus that is away delays an event and loses none; a crash between the
publishing and its commit publishes it again under the same id, which consumers ignore (C-10).
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import prometheus_client
import psycopg

from farmiq import api, crash
from farmiq.cloud import publishing
from farmiq.farm import heads, idempotency, postings
from farmiq.farm.heads import Noted
from farmiq.farm.idempotency import KeyUsedError, ReplacedError
from farmiq.farm.postings import Body, IntakePosted, LotPosted, Posted, RecordPosted, Stay
from farmiq.messages import feed
from farmiq.messages.bus import BusEvent
from farmiq.messages.wording import worded
from farmiq.plumbing import db, ids, log
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.runtime.schedule import Job

EVERY_S = 0.5
BUS_DOWN_S = 2.0
PUBLISH_WITHIN_S = 10.0
MAX_EVENTS = 500


@dataclass(frozen=True, slots=True)
class Family:
    """Where a family's events are, and how one is found by its name and by what it replaces.

    Each condition is that of an index: by the name, by the name of a posted one, by `replaces`.
    """

    table: str
    is_named: str
    is_posted: str
    is_replacing: str

    @property
    def replaced(self) -> str:
        """The query of what `name` is the name of, as Replaced; it may not be stored yet."""
        return f"""
            select e.farm_id, e.barn_id, e.batch_id, (
              select r.event_id from {self.table} r
              where r.tenant_id = %(tenant)s and {self.is_replacing} limit 1) as replaced_by
            from (
              (select farm_id, barn_id, payload ->> 'batch_id' as batch_id, device_id
                from {self.table}
                where tenant_id = %(tenant)s and {self.is_named} and event_type = %(type)s limit 1)
              union all
              (select event ->> 'farm_id', event ->> 'barn_id', event -> 'payload' ->> 'batch_id',
                null
                from posted_events
                where tenant_id = %(tenant)s and {self.is_posted} and event_type = %(type)s)) e
            limit 1
        """  # noqa: S608 - our own words


FAMILIES = {
    "barn": Family(
        "barn_events",
        # Devices choose their ids: one of another farm is another record (D-660).
        "record_id = %(name)s and (farm_id = %(farm)s or device_id is null)",
        "subject = %(name)s",
        "payload ->> 'replaces' = %(name)s and (r.farm_id = e.farm_id or e.device_id is null)",
    ),
    "feed": Family(
        "feed_events",
        "event_id = %(name)s::uuid",
        "event_id = %(name)s::uuid",
        "fn_replaced_event(payload) = %(name)s::uuid",
    ),
}


@dataclass(frozen=True, slots=True)
class Replaced:
    """What a correction names, and the event that replaces it already."""

    farm_id: str
    barn_id: str
    batch_id: str | None
    replaced_by: UUID | None


POSTED = prometheus_client.Counter(
    "farmiq_posted_events_total", "Events that people posted", ["event_type", "outcome"]
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
    at = postings.happened_at(body, now)
    replaced = await _find_replaced(tx, tenant_id, body)
    posted = postings.posted(
        body,
        raw,
        tenant_id=tenant_id,
        by=by,
        key=key,
        event_id=ids.new(),
        trace_id=trace_id,
        now=now,
        batch_id=await _find_batch(tx, tenant_id, body, at, replaced),
    )
    try:
        event, is_new = await idempotency.claim(tx, posted)
    except (KeyUsedError, ReplacedError) as error:
        POSTED.labels(event_type=posted.event.event_type, outcome="conflict").inc()
        raise HttpError(409, str(error)) from None
    except psycopg.errors.ForeignKeyViolation:
        raise api.missing("tenant_id", f"there is no company {tenant_id!r}") from None
    if is_new:
        await _check(tx, posted, body, replaced)
    crash.here("posting.before_commit")
    POSTED.labels(event_type=event.event_type, outcome="new" if is_new else "repeated").inc()
    return event


async def _find_replaced(tx: db.Connection, tenant_id: str, body: Body) -> Replaced | None:
    """What the body names in `replaces`, of the same type."""
    if not body.replaces:
        return None
    event_type = postings.event_type(body)
    query = FAMILIES[event_type.partition(".")[0]].replaced
    named = {
        "tenant": tenant_id, "type": event_type, "name": str(body.replaces), "farm": body.farm_id,
    }  # fmt: skip
    rows = await db.fetch_as(tx, Replaced, query, named)
    return rows[0] if rows else None


async def _find_batch(
    tx: db.Connection, tenant_id: str, body: Body, at: datetime, replaced: Replaced | None
) -> str | None:
    """For a body that names no batch: that of what it corrects, else the one in the barn then."""
    if isinstance(body, LotPosted) or body.batch_id:
        return None
    if replaced and replaced.batch_id and _is_of_place(replaced, body):
        return replaced.batch_id
    batch_id: str | None = await db.fetch_value(
        tx,
        "select fn_batch_at(%s, %s, %s, fn_farm_date(%s, %s, %s))",
        *(tenant_id, body.farm_id, body.barn_id),
        *(tenant_id, body.farm_id, at),
    )
    return batch_id


def _is_of_place(replaced: Replaced, body: Body) -> bool:
    return (replaced.farm_id, replaced.barn_id) == (body.farm_id, body.barn_id)


async def _check(tx: db.Connection, posted: Posted, body: Body, replaced: Replaced | None) -> None:
    """Raises HttpError 404 for what the company does not have, 409 for what is replaced.

    And 400 for a batch that was not in that barn then, and for more dead than there are animals.
    """
    tenant_id = posted.event.tenant_id
    await _check_place(tx, tenant_id, body)
    batch_id = getattr(body, "batch_id", None)
    if batch_id and not (replaced and replaced.batch_id == batch_id):
        await _check_batch(tx, posted.event, batch_id)
    if isinstance(body, IntakePosted) and body.feed_lot_id:
        await _check_lot(tx, tenant_id, body.feed_lot_id)
    if isinstance(body, LotPosted) and body.feed_product_id:
        await _check_product(tx, tenant_id, body.feed_product_id)
    if posted.replaces and replaced is None:
        what = worded(
            "there is no %(kind)s %(quoted)s",
            kind=posted.event.event_type,
            quoted=repr(posted.replaces),
        )
        raise api.missing("replaces", what)
    if replaced and replaced.replaced_by:
        raise HttpError(
            409,
            worded(
                "%(name)s is replaced already, by %(by)s",
                name=posted.replaces, by=replaced.replaced_by,
            ),
        )  # fmt: skip
    if isinstance(body, RecordPosted) and body.record_type in heads.GONE:
        await _check_heads(tx, posted, body)


async def _check_place(tx: db.Connection, tenant_id: str, body: Body) -> None:
    known = await db.fetch_value(
        tx,
        "select exists (select from barns where tenant_id = %s and farm_id = %s and barn_id = %s)",
        tenant_id,
        body.farm_id,
        body.barn_id,
    )
    if not known:
        reason = worded(
            "there is no barn %(barn)s of a farm %(farm)s",
            barn=repr(body.barn_id), farm=repr(body.farm_id),
        )  # fmt: skip
        raise api.missing("barn_id", reason)


async def _check_batch(tx: db.Connection, event: BusEvent, batch_id: str) -> None:
    stays = await db.fetch_as(
        tx,
        Stay,
        """
        select farm_id, barn_id, placed_on, closed_on,
          fn_farm_date(tenant_id, farm_id, %s) as on_date
        from batches where tenant_id = %s and batch_id = %s
        """,
        (event.occurred_at, event.tenant_id, batch_id),
    )
    if not stays:
        raise api.missing("batch_id", worded("there is no batch %(batch)s", batch=repr(batch_id)))
    if reason := stays[0].problem(batch_id, event):
        raise api.invalid(("batch_id", reason))


async def _check_heads(tx: db.Connection, posted: Posted, body: RecordPosted) -> None:
    """Nobody can die who is not there; what edges send is stored as it is (D-462)."""
    event = posted.event
    fields = msgspec.json.decode(event.payload)
    batch_id = fields.get("batch_id")
    if batch_id is None:
        return
    # Of two who write dead animals down at a time, the second sees those of the first.
    await tx.execute(
        "select pg_advisory_xact_lock(hashtextextended(%s || chr(31) || %s, 7502))",
        (event.tenant_id, batch_id),
    )
    cursor = await tx.execute(
        """
        with noted as (
          select r.kpi_date, r.record_id, r.record_type, r.value_number, r.occurred_at
          from fn_batch_records(%(tenant)s, %(batch)s, '-infinity',
            fn_farm_date(%(tenant)s, %(farm)s, fn_now()) + 2) r
          union all
          select fn_farm_date(p.tenant_id, p.farm_id, p.occurred_at), p.record_id, p.record_type,
            p.value_number, p.occurred_at
          from posted_records p
          where p.tenant_id = %(tenant)s and p.batch_id = %(batch)s and p.event_id <> %(event_id)s
        )
        select b.placed_count, fn_farm_date(b.tenant_id, b.farm_id, %(at)s),
          n.kpi_date, n.record_type, n.value_number
        from batches b left join noted n on n.record_type = any(%(types)s)
          and not exists (select from posted_events q where q.tenant_id = b.tenant_id
            and q.event_type = %(type)s and q.replaces = n.record_id)
        where b.tenant_id = %(tenant)s and b.batch_id = %(batch)s
        order by n.occurred_at, n.record_id
        """,
        {
            "tenant": event.tenant_id, "batch": batch_id, "farm": event.farm_id,
            "type": event.event_type, "event_id": event.event_id, "at": event.occurred_at,
            "types": list(heads.TYPES),
        },
    )  # fmt: skip
    rows = await cursor.fetchall()
    if not rows:
        return
    records = [Noted(*row[2:]) for row in rows if row[2] is not None]
    there = heads.left(rows[0][0], records, rows[0][1])
    if reason := heads.too_many(body.record_type, float(body.value), there):
        raise api.invalid(("value", reason))


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
        reason = worded("no lot %(lot)s was received; post it first", lot=repr(feed_lot_id))
        raise api.missing("feed_lot_id", reason)


async def _check_product(tx: db.Connection, tenant_id: str, feed_product_id: str) -> None:
    known = await db.fetch_value(
        tx,
        "select exists (select from feed_products where tenant_id = %s and feed_product_id = %s)",
        tenant_id,
        feed_product_id,
    )
    if not known:
        reason = worded("there is no feed product %(product)s", product=repr(feed_product_id))
        raise api.missing("feed_product_id", reason)


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
