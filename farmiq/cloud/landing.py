"""Landing: events of one queue into one table, once each, acknowledged after the commit.

What every consumer of the cloud does alike: read, look whether the tenants are known, keep, and say
which messages it did not take and why.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import prometheus_client
from psycopg import sql

from farmiq import crash
from farmiq.cloud import bus, forgetting
from farmiq.cloud.bus import Work
from farmiq.cloud.forgetting import Forgotten
from farmiq.config import CloudSettings
from farmiq.messages import bus as envelopes
from farmiq.messages.bus import BusEvent
from farmiq.messages.check import InvalidError
from farmiq.plumbing import consume, db, http, schedule
from farmiq.plumbing.consume import Rejection

EVENTS = prometheus_client.Counter(
    "farmiq_landed_events_total", "Events taken from the bus into tables", ["family", "outcome"]
)

Keep = Callable[[db.Connection, Sequence[BusEvent]], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Landing:
    """`keep` stores events in the caller's transaction and returns how many were new.

    `check` looks at one event before that and raises InvalidError if it cannot be kept.
    """

    family: str
    work: Work
    keep: Keep
    check: Callable[[BusEvent], None] = lambda _: None


def in_table(table: str) -> Keep:
    """Keeps events as they are; the family's own columns are made from the payload (schema/)."""
    statement = _INSERT.format(table=sql.Identifier(table), key=sql.Identifier(f"{table}_pkey"))

    async def keep(tx: db.Connection, events: Sequence[BusEvent]) -> int:
        cursor = await tx.execute(
            statement,
            (
                [each.tenant_id for each in events],
                [each.event_id for each in events],
                [each.event_type for each in events],
                [each.farm_id for each in events],
                [each.barn_id for each in events],
                [_or_none(each.device_id) for each in events],
                [_or_none(each.session_id) for each in events],
                [each.occurred_at for each in events],
                [each.trace_id for each in events],
                [bytes(each.payload).decode() for each in events],
                [each.clock_suspect for each in events],
            ),
        )
        return cursor.rowcount

    return keep


_INSERT = sql.SQL(
    """
    insert into {table} (tenant_id, event_id, event_type, farm_id, barn_id, device_id,
      session_id, occurred_at, trace_id, payload, clock_suspect)
    select e.*
    from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[],
      %s::uuid[], %s::timestamptz[], %s::text[], %s::text[]::jsonb[], %s::bool[])
      as e(tenant_id, event_id, event_type, farm_id, barn_id, device_id,
        session_id, occurred_at, trace_id, payload, clock_suspect)
    order by e.tenant_id, e.event_id
    on conflict on constraint {key} do nothing
    """
)


async def notify_pages(tx: db.Connection, channel: str, events: Sequence[BusEvent]) -> None:
    """Open pages hear at the commit that something of their company changed, and fetch again.

    By the company's random id: whoever may connect may listen, and a tenant's name says more.
    """
    await tx.execute(
        """
        select pg_notify(%s, company_id::text) from companies where tenant_id = any(%s)
        """,
        (channel, sorted({each.tenant_id for each in events})),
    )


def _or_none(value: object) -> object:
    return None if value is msgspec.UNSET else value


async def run(
    settings: CloudSettings,
    server: http.HttpServer,
    *landings: Landing,
    forgotten: Sequence[Forgotten] = (),
) -> None:
    """Consume the queues of a service until told to stop; what is `forgotten` goes meanwhile."""
    name = landings[0].work.service
    url = settings.db_url.get_secret_value()
    async with db.pool(url, name=name, min_size=0, max_size=2 * len(landings)) as pool:
        server.ready(f"{landings[0].family}.database", lambda: db.problem(pool))
        async with asyncio.TaskGroup() as group:
            for landing in landings:
                consumer = _consumer(settings, pool, landing)
                server.ready(f"{landing.family}.{landing.work.purpose}.queue", consumer.problem)
                group.create_task(consumer.run())
            for what in forgotten:
                name = f"{landings[0].family}.forget"
                group.create_task(schedule.run_repeatedly(forgetting.job(pool, what, name=name)))


def _consumer(settings: CloudSettings, pool: db.Pool, landing: Landing) -> consume.Consumer:
    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        return await land(pool, bodies, landing)

    return consume.Consumer(
        settings.amqp_url.get_secret_value(),
        route=landing.work.route(settings.bus_retry_s),
        topology=bus.part(landing.work, settings.bus_retry_s),
        handle=handle,
        is_outage=db.is_outage,
        tls=settings.tls,
    )


async def land(pool: db.Pool, bodies: Sequence[bytes], landing: Landing) -> dict[int, Rejection]:
    """Keep the events in one transaction; the positions that were not taken, with the reasons."""
    events, refused = sort(bodies, landing)
    if not events:
        return refused
    async with db.transaction(pool) as tx:
        for index, tenant_id in await _strangers(tx, events):
            del events[index]
            # A company may be added any minute, so this is tried again before it is given up.
            refused[index] = Rejection(f"tenant {tenant_id!r} is not registered here", final=False)
        new = await landing.keep(tx, list(events.values())) if events else 0
        crash.here("landing.before_commit")
    crash.here("landing.after_commit")
    EVENTS.labels(family=landing.family, outcome="new").inc(new)
    EVENTS.labels(family=landing.family, outcome="repeated").inc(len(events) - new)
    return refused


def sort(
    bodies: Sequence[bytes], landing: Landing
) -> tuple[dict[int, BusEvent], dict[int, Rejection]]:
    """Pure: what can be kept and what never can, by position."""
    events: dict[int, BusEvent] = {}
    refused: dict[int, Rejection] = {}
    for index, body in enumerate(bodies):
        try:
            events[index] = _read(body, landing)
        except InvalidError as invalid:
            refused[index] = Rejection("; ".join(invalid.reasons))
    return events, refused


def _read(body: bytes, landing: Landing) -> BusEvent:
    event = envelopes.read(body)
    if event.event_type not in landing.work.event_types:
        raise InvalidError([f"{event.event_type} is not for the queue {landing.work.queue}"])
    landing.check(event)
    return event


async def _strangers(tx: db.Connection, events: Mapping[int, BusEvent]) -> list[tuple[int, str]]:
    """The positions of events whose tenant is no company here (C-104)."""
    rows = await db.fetch_all(
        tx,
        "select tenant_id from companies where tenant_id = any(%s)",
        sorted({each.tenant_id for each in events.values()}),
    )
    known = {row[0] for row in rows}
    return [
        (index, each.tenant_id) for index, each in events.items() if each.tenant_id not in known
    ]
