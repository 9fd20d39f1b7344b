"""Where one event was, when, in which table or queue: `farmiq trace`.

It shows what it can reach: on a farm that is the edge's database, in the data centre the cloud's.
"""

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from farmiq import trace_hops
from farmiq.cloud import bus
from farmiq.cloud.bus import Work
from farmiq.cloud.deadletter import handlers
from farmiq.cloud.deadletter.rules import BusDeadLetter, BusFilter
from farmiq.messages import edge as edge_messages
from farmiq.plumbing import db
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.tls import Tls
from farmiq.trace_hops import Hop, Rows

EDGE_URL, CLOUD_URL = "FARMIQ_EDGE_DB_URL", "FARMIQ_CLOUD_DB_URL"
CONNECT_TIMEOUT_S = 5
# Dead letters are looked through one by one.
DEAD_LETTERS_TIMEOUT_S = 10.0
MAX_EVENTS = 100  # of a session


class UnreachableError(Exception):
    """No database of either site could be looked at."""


@dataclass(frozen=True, slots=True)
class Sites:
    """What can be looked at from here; None where this machine has no address."""

    edge_url: str | None = None
    cloud_url: str | None = None
    amqp_url: str | None = None
    tls: Tls | None = None


_EDGE = {
    "ingress_dedupe": "select tenant_id, first_seen_at from ingress_dedupe where event_id = %s",
    "telemetry_raw": """
        select r.device_id, r.metric_type, r.metric_value, r.unit, r.occurred_at, r.ingested_at,
          s.metric_type is not null as is_set
        from telemetry_raw r left join metric_settings s using (metric_type) where r.id = %s""",
    "feed_intakes": """
        select device_id, source, quantity_kg, parent_event_id, occurred_at, recorded_at
        from feed_intakes where intake_id = %s""",
    "barn_records": """
        select device_id, record_type, recorded_at as occurred_at, stored_at as recorded_at
        from barn_records where event_id = %s""",
    "weight_sessions": """
        select s.device_id, s.id, s.status, s.final_weight_kg, s.incomplete_reason, s.heard_at,
          e.event_type, e.weight_kg, e.occurred_at, e.received_at
        from weight_session_events e join weight_sessions s on s.id = e.session_id
        where e.event_id = %s""",
    "media_objects": """
        select m.id, m.device_id, m.captured_at, m.upload_status, m.size_bytes, m.stored_at,
          m.synced_at
        from (select %s::uuid as event_id) asked
        left join weight_session_events e using (event_id)
        left join sync_outbox o on o.id = asked.event_id
          and o.event_type = 'weighvision.image.captured'
        join media_objects m on m.stored_event_id = asked.event_id
          or m.id in (e.media_id, (o.payload_json ->> 'media_id')::uuid)""",
    "sync_outbox": """
        select id, tenant_id, event_type, trace_id, status, attempt_count, created_at,
          last_attempt_at, last_error_code, last_error_message, dlq_reason,
          case when event_type ^@ 'edge.alert.' then (payload_json ->> 'alert_id')::uuid end
            as alert_id
        from sync_outbox where id = %s""",
    # Its tenant's pause, and what the last of the tenant's events that failed met.
    "sync_state": """
        select s.consecutive_failures, s.paused_until, e.last_error_code, e.last_error_message
        from sync_outbox o
        join sync_state s on s.tenant_id = o.tenant_id and s.consecutive_failures > 0
        left join lateral (
          select f.last_error_code, f.last_error_message from sync_outbox f
          where f.tenant_id = o.tenant_id and f.status in ('pending', 'claimed')
            and f.attempt_count > 0
          order by f.last_attempt_at desc limit 1) e on true
        where o.id = %s and o.status not in ('acked', 'dlq', 'failed')""",
    "quarantine": """
        select quarantine_id, reasons, first_received_at from quarantine
        where position(convert_to(%s::text, 'UTF8') in raw) > 0""",
}
_ACCEPTED = "select event_type, batch_id, received_at from ingestion_dedupe where event_id = %s"
# What a weighing's event became part of; %s is the event.
_CLOUD = {
    "weight_sessions": """
        select s.session_id as id, s.status, s.final_weight_kg, s.missing, s.heard_at
        from weighvision_events e join weight_sessions s using (tenant_id, session_id)
        where e.event_id = %s""",
    "media_objects": """
        select m.media_id as id, m.size_bytes, m.stored_at
        from weighvision_events e join media_objects m using (tenant_id, media_id)
        where e.event_id = %s""",
}
# What an edge's alert became; %s is the alert, which the edge alone can name.
_EPISODE = """
    select e.episode_id, e.state, e.raised_at, e.resolved_at
    from companies join alert_episodes e using (tenant_id) where e.episode_id = %s"""
# Through the companies, since every table is ordered by tenant first.
_STORED = {
    table: f"""
        select stored_at, trace_id from companies join {table} using (tenant_id)
        where event_id = %s"""  # noqa: S608 - one of ours
    for table in trace_hops.TABLES.values()
}
# A bucket is one row, however often an edge sends it; its id is the event of the last time.
_STORED["telemetry_agg"] = """
    select a.stored_at, 'telemetry-agg-…' as trace_id
    from companies join telemetry_agg a using (tenant_id) where a.sent and a.id = %s"""


async def trace(event_id: UUID, sites: Sites) -> list[Hop]:
    """Every hop in flow order, also those not reached; empty if nobody knows the event.

    A site that cannot be looked at is one hop that says why; UnreachableError if neither can.
    """
    cloud_url, amqp_url = sites.cloud_url, sites.amqp_url
    edge, no_edge = await _look(sites.edge_url, EDGE_URL, _EDGE, event_id)
    cloud, no_cloud = await _look(
        cloud_url, CLOUD_URL, {"ingestion_dedupe": _ACCEPTED, **_STORED}, event_id
    )
    if no_edge and no_cloud:
        raise _unreachable(no_edge, no_cloud)
    accepted = cloud.pop("ingestion_dedupe", None)
    arrived = any((accepted, *cloud.values()))
    if not any(edge.values()) and not arrived:
        return []
    hops: list[Hop] = []
    if no_edge:
        hops.append(trace_hops.unseen("edge", no_edge))
    elif any(edge.values()) or accepted:
        hops += trace_hops.edge_hops(edge, accepted, arrived=arrived)
    if no_cloud:
        return [*hops, trace_hops.unseen("cloud", no_cloud)]
    if trace_hops.goes_in_aggregates(edge) and not arrived:
        return hops
    pending = edge.get("sync_outbox")
    work = trace_hops.work_of(accepted or pending, cloud)
    if work is bus.EDGE:
        stored_row = await _episode(cloud_url, pending)
    else:
        stored_row = cloud[trace_hops.TABLES[work]]
    waiting, dead = None, None
    if accepted and not stored_row and amqp_url:
        waiting, dead = await _on_the_bus(amqp_url, work, event_id, tls=sites.tls)
    hops += trace_hops.cloud_hops(work, accepted, stored_row, waiting, dead)
    if work is bus.WEIGHVISION:
        became, _ = await _look(cloud_url, CLOUD_URL, _CLOUD, event_id)
        hops += trace_hops.became(edge, became)
    return hops


async def _episode(cloud_url: str | None, pending: dict[str, Any] | None) -> dict[str, Any] | None:
    """The episode of an edge's alert, if it shows that this event of it has been taken."""
    if pending is None:
        return None
    episodes, _ = await _look(cloud_url, CLOUD_URL, {"": _EPISODE}, pending["alert_id"])
    episode = episodes.get("")
    is_closing = pending["event_type"] == edge_messages.ALERT_CLOSED
    return None if is_closing and not (episode and episode["resolved_at"]) else episode


# Which events are meant, oldest first: (of the edge, of the cloud).
_EVENTS_OF = {
    "session": (
        """
        select event_id, occurred_at from weight_session_events where session_id = %(id)s
        order by 2, 1 limit 100""",
        """
        select event_id, occurred_at from companies join weighvision_events using (tenant_id)
        where session_id = %(id)s order by 2, 1 limit 100""",
    ),
    "image": (
        """
        select e.event_id, e.occurred_at from media_objects m
        join weight_session_events e on e.session_id = m.session_id and e.media_id = m.id
        where m.id = %(id)s
        union
        select o.id, o.occurred_at from media_objects m
        join sync_outbox o on o.id = m.stored_event_id
          or o.tenant_id = m.tenant_id and o.event_type = 'weighvision.image.captured'
            and o.payload_json ->> 'media_id' = m.id::text
        where m.id = %(id)s
        order by 2, 1 limit 100""",
        """
        select e.event_id, e.occurred_at
        from companies join media_objects m using (tenant_id)
        join weighvision_events e on e.tenant_id = m.tenant_id
          and e.session_id = m.session_id and e.media_id = m.media_id
        where m.media_id = %(id)s
        union
        select e.event_id, e.occurred_at from companies join media_events e using (tenant_id)
        where e.media_id = %(id)s
        order by 2, 1 limit 100""",
    ),
}
# The newest: in the cloud of the readings, which have a small table of their newest.
_LAST = (
    "select event_id, first_seen_at from ingress_dedupe order by first_seen_at desc limit 1",
    "select event_id, stored_at from telemetry_latest order by stored_at desc limit 1",
)
# The newest event of the outbox, but for what may just be on its way.
_LAST_PENDING = """
  select d.event_id, d.first_seen_at from (
    select event_id, first_seen_at from ingress_dedupe
    where first_seen_at <= fn_now() - interval '5 seconds'
    order by first_seen_at desc limit 1000) d
  join sync_outbox o on o.id = d.event_id
  order by d.first_seen_at desc limit 1"""


async def events_of(kind: str, key: UUID, sites: Sites) -> list[UUID]:
    """The events of a `session` or an `image`, as either site knows them, oldest first."""
    of_edge, of_cloud = _EVENTS_OF[kind]
    edge, cloud = await _both(sites, of_edge, of_cloud, {"id": key})
    times = {row["event_id"]: row["occurred_at"] for row in (*edge, *cloud)}
    return sorted(times, key=lambda event_id: (times[event_id], event_id.int))[:MAX_EVENTS]


async def last_event(sites: Sites) -> UUID | None:
    """The newest event: the one that waits on its way, else that of the farthest site in sight.

    What came within the last seconds does not count as waiting.
    """
    if sites.edge_url and sites.cloud_url:
        pending, _ = await _select(sites.edge_url, EDGE_URL, {"": _LAST_PENDING}, {})
        for row in pending.get("", []):
            if not trace_hops.is_delivered(await trace(row["event_id"], sites)):
                return UUID(str(row["event_id"]))
    edge, cloud = await _both(sites, *_LAST, {})
    newest = next(iter((*cloud, *edge)), None)
    return newest["event_id"] if newest else None


async def _both(
    sites: Sites, of_edge: str, of_cloud: str, values: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What each site answers, nothing if it is out of reach; UnreachableError if both are."""
    edge, no_edge = await _select(sites.edge_url, EDGE_URL, {"": of_edge}, values)
    cloud, no_cloud = await _select(sites.cloud_url, CLOUD_URL, {"": of_cloud}, values)
    if no_edge and no_cloud:
        raise _unreachable(no_edge, no_cloud)
    return edge.get("", []), cloud.get("", [])


def _unreachable(no_edge: str, no_cloud: str) -> UnreachableError:
    return UnreachableError(f"nothing can be looked at. {no_edge}; {no_cloud}")


async def _look(
    url: str | None, variable: str, queries: dict[str, str], event_id: UUID
) -> tuple[Rows, str | None]:
    """(the row of each table, None), or (nothing, why the database could not be looked at)."""
    tables, why = await _select(url, variable, queries, (event_id,))
    return {table: rows[0] if rows else None for table, rows in tables.items()}, why


async def _select(
    url: str | None, variable: str, queries: dict[str, str], values: Any
) -> tuple[dict[str, list[dict[str, Any]]], str | None]:
    """(the rows of each query, None), or (nothing, why not)."""
    if not url:
        return {}, f"{variable} is not set here"
    tables = {}
    try:
        async with await _connected(url) as connection:
            for name, query in queries.items():
                cursor = await connection.execute(query.encode(), values)
                tables[name] = await cursor.fetchall()
    except psycopg.OperationalError as error:
        return {}, f"{variable} leads to no database: {db.first_line(error)}"
    return tables, None


async def _connected(url: str) -> "psycopg.AsyncConnection[dict[str, Any]]":
    return await psycopg.AsyncConnection.connect(
        url, row_factory=dict_row, connect_timeout=CONNECT_TIMEOUT_S, application_name="farmiq"
    )


async def _on_the_bus(
    amqp_url: str, work: Work, event_id: UUID, *, tls: Tls | None
) -> tuple[int | None, BusDeadLetter | None]:
    """(how many wait for its service, itself as a dead letter); None for what cannot be seen."""
    chosen = BusFilter(work.dead_letters, event_ids=frozenset({str(event_id)}))
    waiting = None
    try:
        depths = await amqp.depths(amqp_url, (work.queue, *work.route().retries), tls=tls)
        waiting = sum(depths.values()) if work.queue in depths else None
        async with (
            asyncio.timeout(DEAD_LETTERS_TIMEOUT_S),
            amqp.connection(amqp_url, name="farmiq-trace", tls=tls) as opened,
        ):
            async for letter, _ in handlers.browse(opened, chosen):
                return waiting, letter
    except (*amqp.UNAVAILABLE, TimeoutError):
        return None, None
    return waiting, None
