"""Where one event was, when, in which table or queue: `farmiq trace`.

It shows what it can reach: on a farm that is the edge's database, in the data centre the cloud's.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from farmiq.cloud import bus
from farmiq.cloud.bus import Work
from farmiq.cloud.deadletter import handlers
from farmiq.cloud.deadletter.rules import BusDeadLetter, BusFilter
from farmiq.edge.sync import rules
from farmiq.messages import edge as edge_messages
from farmiq.messages import telemetry
from farmiq.plumbing import db
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.tls import Tls

EDGE_URL, CLOUD_URL = "FARMIQ_EDGE_DB_URL", "FARMIQ_CLOUD_DB_URL"
CONNECT_TIMEOUT_S = 5
# Dead letters are looked through one by one.
DEAD_LETTERS_TIMEOUT_S = 10.0
MAX_EVENTS = 100  # of a session


@dataclass(frozen=True, slots=True)
class Hop:
    """`at` is None while the event has not been there; `next` is what a person can do about it.

    Of a place that could not be looked at (`is_visible` is False) nothing is known.
    """

    site: str
    place: str
    at: datetime | None
    note: str
    next: str = ""
    is_visible: bool = True


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
_TABLES = {
    bus.TELEMETRY: "telemetry_readings",
    bus.AGGREGATES: "telemetry_agg",
    bus.WEIGHVISION: "weighvision_events",
    bus.MEDIA: "media_events",
    bus.INFERENCE: "inference_events",
    bus.FEED: "feed_events",
    bus.BARN: "barn_events",
    bus.DEVICE: "device_events",
    bus.SYNC: "sync_events",
    bus.KPI: "kpi_events",
}
# Through the companies, since every table is ordered by tenant first.
_STORED = {
    table: f"""
        select stored_at, trace_id from companies join {table} using (tenant_id)
        where event_id = %s"""  # noqa: S608 - one of ours
    for table in _TABLES.values()
}
# A bucket is one row, however often an edge sends it; its id is the event of the last time.
_STORED["telemetry_agg"] = """
    select a.stored_at, 'telemetry-agg-…' as trace_id
    from companies join telemetry_agg a using (tenant_id) where a.sent and a.id = %s"""


Rows = dict[str, dict[str, Any] | None]


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
        hops.append(_unseen("edge", no_edge))
    elif any(edge.values()) or accepted:
        hops += _edge_hops(edge, accepted, arrived=arrived)
    if no_cloud:
        return [*hops, _unseen("cloud", no_cloud)]
    if _goes_in_aggregates(edge) and not arrived:
        return hops
    pending = edge.get("sync_outbox")
    work = _work(accepted or pending, cloud)
    if work is bus.EDGE:
        stored_row = await _episode(cloud_url, pending)
    else:
        stored_row = cloud[_TABLES[work]]
    waiting, dead = None, None
    if accepted and not stored_row and amqp_url:
        waiting, dead = await _on_the_bus(amqp_url, work, event_id, tls=sites.tls)
    hops += _cloud_hops(work, accepted, stored_row, waiting, dead)
    if work is bus.WEIGHVISION:
        became, _ = await _look(cloud_url, CLOUD_URL, _CLOUD, event_id)
        hops += _became(edge, became)
    return hops


async def _episode(cloud_url: str | None, pending: dict[str, Any] | None) -> dict[str, Any] | None:
    """The episode of an edge's alert, if it shows that this event of it has been taken."""
    if pending is None:
        return None
    episodes, _ = await _look(cloud_url, CLOUD_URL, {"": _EPISODE}, pending["alert_id"])
    episode = episodes.get("")
    is_closing = pending["event_type"] == edge_messages.ALERT_CLOSED
    return None if is_closing and not _at(episode, "resolved_at") else episode


def is_delivered(hops: Sequence[Hop]) -> bool:
    """Whether the event has been at the last place that could be looked at."""
    return next((hop.at is not None for hop in reversed(hops) if hop.is_visible), False)


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
        owed, _ = await _select(sites.edge_url, EDGE_URL, {"": _LAST_PENDING}, {})
        for row in owed.get("", []):
            if not is_delivered(await trace(row["event_id"], sites)):
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


def timed(hops: Sequence[Hop]) -> list[tuple[Hop, str]]:
    """Each hop with the time since the edge first saw the event.

    Clocks differ: a moment before that is not an amount of time, and the note says whose clock.
    """
    ours = [hop.at for hop in hops if hop.at and hop.site != "device"]
    start = ours[0] if ours else None
    lines: list[tuple[Hop, str]] = []
    for hop in hops:
        if hop.at is None or start is None:
            lines.append((hop, ""))
        elif hop.site == "device":
            ahead = hop.at - start
            note = f"{hop.note}; its clock is {_span(ahead)} ahead" if ahead > _TICK else hop.note
            lines.append((replace(hop, note=note), ""))
        elif hop.at < start:
            note = f"{hop.note}; by the {hop.site}'s clock, which is {_span(start - hop.at)} behind"
            lines.append((replace(hop, note=note), ""))
        else:
            lines.append((hop, f"+{_span(hop.at - start)}"))
    return lines


_TICK = timedelta(milliseconds=1)


def _span(time: timedelta) -> str:
    seconds = time.total_seconds()
    for limit, unit, name in ((10, 0.001, "ms"), (120, 1, "s"), (7200, 60, "min")):
        if seconds < limit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds / 3600:,.1f} h"


def _unseen(site: str, why: str) -> Hop:
    return Hop(site, "database", None, f"not looked at: {why}", is_visible=False)


def _work(known: dict[str, Any] | None, stored: dict[str, dict[str, Any] | None]) -> Work:
    """Whose event it is: by the table that has it, else by its type in the outbox or at ingestion.

    Neither ingress nor the edge remembers ids for ever, and what the cloud makes itself never
    came through ingestion.
    """
    stored_by = next((work for work, table in _TABLES.items() if stored[table]), None)
    event_type = known["event_type"] if known else telemetry.INGESTED
    named = next(
        (work for work in (*bus.SINKS, bus.EDGE) if event_type in work.event_types), bus.TELEMETRY
    )
    return stored_by or named


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


def _edge_hops(edge: Rows, accepted: dict[str, Any] | None, *, arrived: bool) -> list[Hop]:
    raw, seen, pending = edge["telemetry_raw"], edge["ingress_dedupe"], edge["sync_outbox"]
    event_type = (pending or accepted or {}).get("event_type")
    recorded_in = next((table for table in ("feed_intakes", "barn_records") if edge[table]), None)
    hops = []
    if refused := edge["quarantine"]:
        reasons = "; ".join(refused["reasons"])
        show = f"farmiq quarantine show {refused['quarantine_id']}"
        hops.append(Hop("edge", "quarantine", refused["first_received_at"], reasons, show))
        if raw is None and recorded_in is None and not edge["weight_sessions"]:
            return hops
    if edge["weight_sessions"] or edge["media_objects"]:
        return [*hops, *_weighed_hops(edge), *_outbox_hops(pending, edge["sync_state"])]
    if recorded_in:
        return [
            *hops,
            *_recorded_hops(recorded_in, edge),
            *_outbox_hops(pending, edge["sync_state"]),
        ]
    if raw:
        hops.append(Hop("device", f"{raw['device_id']}", raw["occurred_at"], _reading(raw)))
    # What the edge makes itself, such as its alerts, came from no device.
    if seen or raw or event_type in (None, telemetry.INGESTED):
        hops.append(Hop("edge", "ingress_dedupe", _at(seen, "first_seen_at"), "first seen"))
    if raw and pending is None:
        by_itself = arrived or not _goes_in_aggregates(edge)
        note = f"stored at the edge; {_unowed(raw, by_itself=by_itself)}"
        return [*hops, Hop("edge", "telemetry_raw", raw["ingested_at"], note)]
    if raw or event_type == telemetry.INGESTED:
        hops.append(Hop("edge", "telemetry_raw", _at(raw, "ingested_at"), "stored at the edge"))
    return [*hops, *_outbox_hops(pending, edge["sync_state"])]


def _goes_in_aggregates(edge: Rows) -> bool:
    """Whether a reading is here, is not in the outbox, and is of a configured metric."""
    raw = edge.get("telemetry_raw")
    return raw is not None and edge["sync_outbox"] is None and raw["is_set"]


def _unowed(raw: dict[str, Any], *, by_itself: bool) -> str:
    if by_itself:
        return "no longer in the outbox"
    return f"not sent by itself: {raw['metric_type']} goes as aggregates (`farmiq metric ls`)"


def _recorded_hops(table: str, edge: dict[str, dict[str, Any] | None]) -> list[Hop]:
    """Hops of feed and barn; an event made from another one did not come from a device."""
    row, seen = edge[table] or {}, edge["ingress_dedupe"]
    made = row.get("parent_event_id")
    what = f"{row['source']} {row['quantity_kg']:g} kg" if "source" in row else row["record_type"]
    hops = [Hop("device", str(row["device_id"]), row["occurred_at"], what)]
    if made is None:
        hops.append(Hop("edge", "ingress_dedupe", _at(seen, "first_seen_at"), "first seen"))
    note = f"made from event {made}" if made else "stored at the edge"
    return [*hops, Hop("edge", table, row["recorded_at"], note)]


def _weighed_hops(edge: dict[str, dict[str, Any] | None]) -> list[Hop]:
    """Of a weigh station; an image may be without a session, and a session without an image."""
    session, image, seen = edge["weight_sessions"], edge["media_objects"], edge["ingress_dedupe"]
    hops = []
    if session:
        weight = "" if session["weight_kg"] is None else f" {session['weight_kg']:g} kg"
        what = f"{session['event_type']}{weight}"
        hops.append(Hop("device", session["device_id"], session["occurred_at"], what))
    elif image:
        hops.append(Hop("device", image["device_id"], image["captured_at"], "image"))
    if seen:
        hops.append(Hop("edge", "ingress_dedupe", seen["first_seen_at"], "first seen"))
    if session:
        hops.append(Hop("edge", "weight_session_events", session["received_at"], "kept as a fact"))
        hops.append(Hop("edge", "weight_sessions", session["heard_at"], _session(session)))
    if image:
        synced = "in the cloud" if image["synced_at"] else "the cloud has it not yet"
        note = f"image {image['id']} {image['upload_status']}, {synced}"
        hops.append(Hop("edge", "media_objects", image["stored_at"], note))
    return hops


def _became(edge: Rows, cloud: Rows) -> list[Hop]:
    """The session in the cloud, and the image, where the edge has one."""
    session, image = cloud["weight_sessions"], cloud["media_objects"]
    hops = []
    if session or edge.get("weight_sessions"):
        note = _session(session) if session else "not there yet"
        hops.append(Hop("cloud", "weight_sessions", _at(session, "heard_at"), note))
    if image or edge.get("media_objects"):
        stored = _at(image, "stored_at")
        note = f"image {image['id']}, {image['size_bytes']} bytes" if image else "not there yet"
        hops.append(Hop("cloud", "media_objects", stored, note if stored else "not there yet"))
    return hops


def _session(row: dict[str, Any]) -> str:
    weight = "" if row["final_weight_kg"] is None else f" with {row['final_weight_kg']:g} kg"
    lacks = row.get("incomplete_reason") or ", ".join(row.get("missing") or ())
    return f"session {row['id']} {row['status']}{weight}" + (f"; lacks {lacks}" if lacks else "")


def _outbox_hops(pending: dict[str, Any] | None, trouble: dict[str, Any] | None) -> list[Hop]:
    trace = f"; trace {pending['trace_id']}" if pending and pending["trace_id"] else ""
    note = f"queued for the cloud{trace}" if pending else "not in the outbox, or no longer"
    hops = [Hop("edge", "sync_outbox", _at(pending, "created_at"), note)]
    if pending:
        delivered = pending["last_attempt_at"] if pending["status"] == "acked" else None
        note, command = delivery(pending, trouble)
        hops.append(Hop("edge", "edge-sync-forwarder", delivered, note, command))
    return hops


def delivery(pending: dict[str, Any], trouble: dict[str, Any] | None) -> tuple[str, str]:
    """(how the delivery of an outbox row stands, the next command); `trouble` is its tenant's."""
    event_id, status = pending["id"], pending["status"]
    text = f"{status}, attempts that failed: {pending['attempt_count']}"
    why = _error(pending)
    if status == "dlq":
        show = f"farmiq outbox show {event_id}, then farmiq outbox redrive {event_id} (or discard)"
        return f"{text}, {pending['dlq_reason']}{why}", show
    if status == "failed":
        return f"{text}, given up by a person; {pending['dlq_reason']}{why}", ""
    if trouble is None or status == "acked":
        return f"{text}{why}", ""
    reason = why or _error(trouble)
    until = trouble["paused_until"]
    pause = f"; paused until {until.astimezone():%Y-%m-%d %H:%M:%S %Z}" if until else ""
    failures = f"the last {trouble['consecutive_failures']} tries of tenant {pending['tenant_id']}"
    if any(code in reason for code in rules.OPERATOR_CODES):
        mend = "check the edge's key, its clock, the tenant and FARMIQ_CLOUD_URL: "
        return (
            f"{text}; the cloud does not let {failures} in{reason}{pause}",
            f"{mend}farmiq alert ls --kind sync",
        )
    return f"{text}; {failures} failed{reason}{pause}", "farmiq outbox stats"


def _error(row: dict[str, Any]) -> str:
    text = ": ".join(filter(None, (row["last_error_code"], row["last_error_message"])))
    return f" ({text})" if text else ""


def _cloud_hops(
    work: Work,
    noted: dict[str, Any] | None,
    stored_row: dict[str, Any] | None,
    waiting: int | None,
    dead: BusDeadLetter | None,
) -> list[Hop]:
    received = _at(noted, "received_at")
    unnoted = (
        "no longer known to ingestion, or made in the cloud" if stored_row else "not received yet"
    )
    batch = f"accepted in {noted['batch_id']}" if noted else unnoted
    depth = "unknown" if waiting is None else str(waiting)
    queue = "confirmed by the bus" if noted or stored_row else "not published yet"
    command = ""
    if dead:
        queue += f"; a dead letter after {dead.attempts} attempts: {dead.reason}"
        command = "mend the cause, then farmiq dlq redrive --event-id " + (dead.event_id or "")
    elif noted and not stored_row and (waiting or work is not bus.EDGE):
        queue += f"; still in the queue or its dead letters ({depth} waiting)"
        command = "farmiq dlq ls"
    return [
        Hop("cloud", "ingestion_dedupe", received, batch),
        Hop("cloud", work.queue, received, queue, command),
        _alert_hop(noted, stored_row, waiting, dead)
        if work is bus.EDGE
        else _table_hop(work, stored_row),
    ]


def _table_hop(work: Work, stored_row: dict[str, Any] | None) -> Hop:
    on_page = ", on the page" if work is bus.TELEMETRY else ""
    stored = (
        f"stored in the cloud{on_page}; trace {stored_row['trace_id']}"
        if stored_row
        else "not stored yet"
    )
    if work is bus.AGGREGATES and not stored_row:
        stored += ", or sent again since with more readings"
    return Hop("cloud", _TABLES[work], _at(stored_row, "stored_at"), stored)


def _alert_hop(
    accepted: dict[str, Any] | None,
    episode: dict[str, Any] | None,
    waiting: int | None,
    dead: BusDeadLetter | None,
) -> Hop:
    """An edge's alert is an episode, not a row by event; else its empty queue shows it was taken.

    One of a rule is the episode that the cloud's own values opened.
    """
    received = _at(accepted, "received_at")
    if episode:
        note = f"episode {episode['episode_id']} {episode['state']}"
        return Hop("cloud", "alert_episodes", received or episode["raised_at"], note)
    if accepted is None or dead or waiting:
        return Hop("cloud", "alert_episodes", None, "not taken yet")
    if waiting is None:
        note = "not looked at: no row has an alert's event_id, and the bus cannot be seen here"
        return Hop("cloud", "alert_episodes", None, note, is_visible=False)
    return Hop("cloud", "alert_episodes", received, f"taken by {bus.EDGE.service}")


def _at(row: dict[str, Any] | None, column: str) -> datetime | None:
    return row[column] if row else None


def _reading(row: dict[str, Any]) -> str:
    return f"captured {row['metric_type']} {row['metric_value']:g} {row['unit']}"
