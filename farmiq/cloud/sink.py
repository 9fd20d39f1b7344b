"""A sink: stores the events of one queue in a table, once each, acknowledged after the commit.

What all consumers of the cloud have in common: parse, check that the tenants are known, store, and
return the messages that were rejected, with the reasons.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import prometheus_client
from psycopg import sql

from farmiq import crash
from farmiq.cloud import bus
from farmiq.cloud.bus import Work
from farmiq.config import CloudSettings
from farmiq.messages import bus as envelopes
from farmiq.messages.bus import BusEvent
from farmiq.messages.check import InvalidError
from farmiq.plumbing import db, http, retention
from farmiq.plumbing.bus import consume
from farmiq.plumbing.bus.consume import Rejection
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime import schedule

EVENTS = prometheus_client.Counter(
    "farmiq_landed_events_total", "Events taken from the bus into tables", ["family", "outcome"]
)

Store = Callable[[db.Connection, Sequence[BusEvent]], Awaitable[int]]
Select = Callable[[Mapping[int, BusEvent]], Awaitable[dict[int, BusEvent]]]


@dataclass(frozen=True, slots=True)
class Sink:
    """`store` stores events in the caller's transaction and returns how many were new.

    `check` looks at one event before that and may raise InvalidError. `select` leaves out events
    that are nothing to `store`: they cost no transaction. `retention` says which rows are removed
    by age.
    """

    family: str
    work: Work
    store: Store
    check: Callable[[BusEvent], None] = lambda _: None
    retention: Callable[[CloudSettings], Retention] | None = None
    select: Select | None = None

    async def run(self, settings: CloudSettings, server: http.HttpServer) -> None:
        """The service of this sink alone."""
        await run(settings, server, self)


def insert_into(table: str) -> Store:
    """Stores events as they are; the family's own columns are made from the payload (schema/)."""
    statement = _INSERT.format(table=sql.Identifier(table), key=sql.Identifier(f"{table}_pkey"))

    async def store(tx: db.Connection, events: Sequence[BusEvent]) -> int:
        cursor = await tx.execute(
            statement,
            (
                *db.columns(
                    events, "tenant_id", "event_id", "event_type", "farm_id", "barn_id",
                    "occurred_at", "trace_id", "clock_suspect",
                ),
                [_or_none(event.device_id) for event in events],
                [_or_none(event.session_id) for event in events],
                [bytes(event.payload).decode() for event in events],
            ),
        )  # fmt: skip
        return cursor.rowcount

    return store


_INSERT = sql.SQL(
    """
    insert into {table} (tenant_id, event_id, event_type, farm_id, barn_id, occurred_at, trace_id,
      clock_suspect, device_id, session_id, payload)
    select e.*
    from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[], %s::timestamptz[],
      %s::text[], %s::bool[], %s::text[], %s::uuid[], %s::text[]::jsonb[])
      as e(tenant_id, event_id, event_type, farm_id, barn_id, occurred_at, trace_id,
        clock_suspect, device_id, session_id, payload)
    order by e.tenant_id, e.event_id
    on conflict on constraint {key} do nothing
    """
)


async def notify_pages(tx: db.Connection, channel: str, events: Sequence[BusEvent]) -> None:
    """At the commit, open pages of these companies get a notification and fetch again.

    By the company's random id: every login may listen, and a tenant's name says more.
    """
    await tx.execute(
        """
        select pg_notify(%s, company_id::text) from companies where tenant_id = any(%s)
        """,
        (channel, sorted({event.tenant_id for event in events})),
    )


def _or_none(value: object) -> object:
    return None if value is msgspec.UNSET else value


async def run(settings: CloudSettings, server: http.HttpServer, *sinks: Sink) -> None:
    """Consume the queues of one service until cancelled, and remove old rows meanwhile."""
    name, family = sinks[0].work.service, sinks[0].family
    url = settings.db_url.get_secret_value()
    async with db.pool(url, name=name, min_size=0, max_size=2 * len(sinks)) as pool:
        server.ready(f"{family}.database", lambda: db.problem(pool))
        async with asyncio.TaskGroup() as group:
            for sink in sinks:
                consumer = _consumer(settings, pool, sink)
                server.ready(f"{sink.family}.{sink.work.purpose}.queue", consumer.problem)
                group.create_task(consumer.run())
                if sink.retention:
                    job = retention.job(pool, sink.retention(settings), name=f"{family}.forget")
                    group.create_task(schedule.run_repeatedly(job))


def _consumer(settings: CloudSettings, pool: db.Pool, sink: Sink) -> consume.Consumer:
    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        return await store_events(pool, bodies, sink)

    return consume.Consumer(
        settings.amqp_url.get_secret_value(),
        route=sink.work.route(settings.bus_retry_s),
        topology=bus.part(sink.work, settings.bus_retry_s),
        handle=handle,
        is_outage=db.is_outage,
        tls=settings.tls,
    )


async def store_events(pool: db.Pool, bodies: Sequence[bytes], sink: Sink) -> dict[int, Rejection]:
    """Store the events in one transaction; returns the rejected positions with the reasons."""
    events, rejected = parse(bodies, sink)
    if sink.select and events:
        events = await sink.select(events)
    if not events:
        return rejected
    async with db.transaction(pool) as tx:
        for index, tenant_id in await _unknown_tenants(tx, events):
            del events[index]
            # A company may be added any minute, so this is tried again before it is given up.
            rejected[index] = Rejection(bus.unknown_tenant(tenant_id), final=False)
        new = await sink.store(tx, list(events.values())) if events else 0
        crash.here("sink.before_commit")
    crash.here("sink.after_commit")
    EVENTS.labels(family=sink.family, outcome="new").inc(new)
    EVENTS.labels(family=sink.family, outcome="repeated").inc(len(events) - new)
    return rejected


def parse(bodies: Sequence[bytes], sink: Sink) -> tuple[dict[int, BusEvent], dict[int, Rejection]]:
    """Pure: the events that can be stored and the messages that never can, by position."""
    events: dict[int, BusEvent] = {}
    rejected: dict[int, Rejection] = {}
    for index, body in enumerate(bodies):
        try:
            events[index] = _parse_one(body, sink)
        except InvalidError as invalid:
            rejected[index] = Rejection("; ".join(invalid.reasons))
    return events, rejected


def _parse_one(body: bytes, sink: Sink) -> BusEvent:
    event = envelopes.read(body)
    if event.event_type not in (*sink.work.event_types, *sink.work.former_types):
        raise InvalidError([f"{event.event_type} is not for the queue {sink.work.queue}"])
    sink.check(event)
    return event


async def _unknown_tenants(
    tx: db.Connection, events: Mapping[int, BusEvent]
) -> list[tuple[int, str]]:
    """The positions of events whose tenant is no company here (C-104)."""
    rows = await db.fetch_all(
        tx,
        "select tenant_id from companies where tenant_id = any(%s)",
        sorted({event.tenant_id for event in events.values()}),
    )
    known = {row[0] for row in rows}
    return [
        (index, event.tenant_id) for index, event in events.items() if event.tenant_id not in known
    ]
