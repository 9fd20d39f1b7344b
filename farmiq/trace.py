"""Where one event was, when, in which table or queue: `farmiq trace <event_id>`."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from farmiq.cloud import bus
from farmiq.cloud.bus import Work
from farmiq.messages import telemetry
from farmiq.plumbing import amqp


@dataclass(frozen=True, slots=True)
class Hop:
    """`at` is None while the event has not been there."""

    site: str
    place: str
    at: datetime | None
    note: str


_EDGE = {
    "ingress_dedupe": "select tenant_id, first_seen_at from ingress_dedupe where event_id = %s",
    "telemetry_raw": """
        select device_id, metric_type, metric_value, unit, occurred_at, ingested_at
        from telemetry_raw where id = %s""",
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
        select event_type, status, attempt_count, created_at, last_attempt_at, last_error_code,
          dlq_reason
        from sync_outbox where id = %s""",
    "quarantine": """
        select reasons, first_received_at from quarantine
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
_TABLES = {
    bus.TELEMETRY: "telemetry_readings",
    bus.AGGREGATES: "telemetry_aggregates",
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
    table: f"select stored_at from companies join {table} using (tenant_id) where event_id = %s"  # noqa: S608 - one of ours
    for table in _TABLES.values()
}


async def trace(
    event_id: UUID, *, edge_url: str, cloud_url: str, amqp_url: str | None
) -> list[Hop]:
    """Every hop in flow order, also those not reached; empty if nobody knows the event."""
    edge = await _look(edge_url, _EDGE, event_id)
    cloud = await _look(cloud_url, {"ingestion_dedupe": _ACCEPTED, **_STORED}, event_id)
    accepted = cloud.pop("ingestion_dedupe")
    if not any((*edge.values(), accepted, *cloud.values())):
        return []
    work = _work(accepted or edge["sync_outbox"], cloud)
    waiting = await _waiting(amqp_url, work.queue)
    hops = [
        *(_edge_hops(edge) if any(edge.values()) or accepted else ()),
        *_cloud_hops(work, accepted, cloud[_TABLES[work]], waiting),
    ]
    if work is bus.WEIGHVISION:
        hops += _became(edge, await _look(cloud_url, _CLOUD, event_id))
    return hops


def _work(known: dict[str, Any] | None, stored: dict[str, dict[str, Any] | None]) -> Work:
    """Whose event it is: by the table that has it, else by the type it was owed or accepted under.

    Neither the door's memory nor the edge's lasts for ever, and what the cloud makes itself never
    came through the door.
    """
    found = next((work for work, table in _TABLES.items() if stored[table]), None)
    event_type = known["event_type"] if known else telemetry.INGESTED
    named = next((one for one in bus.WORKS if event_type in one.event_types), bus.TELEMETRY)
    return found or named


async def _look(
    url: str, queries: dict[str, str], event_id: UUID
) -> dict[str, dict[str, Any] | None]:
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        found: dict[str, dict[str, Any] | None] = {}
        for table, query in queries.items():
            cursor = await connection.execute(query.encode(), (event_id,))
            found[table] = await cursor.fetchone()
        return found


async def _waiting(amqp_url: str | None, queue: str) -> int | None:
    if amqp_url is None:
        return None
    try:
        found = await amqp.depth(amqp_url, queue)
    except amqp.UNAVAILABLE:
        return None
    return found[0] if found else None


def _edge_hops(edge: dict[str, dict[str, Any] | None]) -> list[Hop]:
    raw, seen, owed = edge["telemetry_raw"], edge["ingress_dedupe"], edge["sync_outbox"]
    told = next((table for table in ("feed_intakes", "barn_records") if edge[table]), None)
    hops = []
    if refused := edge["quarantine"]:
        reasons = "; ".join(refused["reasons"])
        hops.append(Hop("edge", "quarantine", refused["first_received_at"], reasons))
        if raw is None and told is None and not edge["weight_sessions"]:
            return hops
    if edge["weight_sessions"] or edge["media_objects"]:
        return [*hops, *_weighed_hops(edge), *_owed_hops(owed)]
    if told:
        return [*hops, *_told_hops(told, edge), *_owed_hops(owed)]
    if raw:
        hops.append(Hop("device", f"{raw['device_id']}", raw["occurred_at"], _reading(raw)))
    hops.append(Hop("edge", "ingress_dedupe", _at(seen, "first_seen_at"), "first seen"))
    hops.append(Hop("edge", "telemetry_raw", _at(raw, "ingested_at"), "stored at the edge"))
    return [*hops, *_owed_hops(owed)]


def _told_hops(table: str, edge: dict[str, dict[str, Any] | None]) -> list[Hop]:
    """Of feed and barn; what was made from another event was not seen at the door."""
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


def _became(
    edge: dict[str, dict[str, Any] | None], cloud: dict[str, dict[str, Any] | None]
) -> list[Hop]:
    """The session in the cloud, and the image, where the edge has one."""
    session, image = cloud["weight_sessions"], cloud["media_objects"]
    hops = []
    if session or edge["weight_sessions"]:
        note = _session(session) if session else "not there yet"
        hops.append(Hop("cloud", "weight_sessions", _at(session, "heard_at"), note))
    if image or edge["media_objects"]:
        stored = _at(image, "stored_at")
        note = f"image {image['id']}, {image['size_bytes']} bytes" if image else "not there yet"
        hops.append(Hop("cloud", "media_objects", stored, note if stored else "not there yet"))
    return hops


def _session(row: dict[str, Any]) -> str:
    weight = "" if row["final_weight_kg"] is None else f" with {row['final_weight_kg']:g} kg"
    lacks = row.get("incomplete_reason") or ", ".join(row.get("missing") or ())
    return f"session {row['id']} {row['status']}{weight}" + (f"; lacks {lacks}" if lacks else "")


def _owed_hops(owed: dict[str, Any] | None) -> list[Hop]:
    hops = [Hop("edge", "sync_outbox", _at(owed, "created_at"), "owed to the cloud")]
    if owed:
        delivered = owed["last_attempt_at"] if owed["status"] == "acked" else None
        hops.append(Hop("edge", "edge-sync-forwarder", delivered, _delivery(owed)))
    return hops


def _cloud_hops(
    work: Work, noted: dict[str, Any] | None, kept: dict[str, Any] | None, waiting: int | None
) -> list[Hop]:
    received = _at(noted, "received_at")
    unnoted = "no longer known at the door, or made in the cloud" if kept else "not received yet"
    batch = f"accepted in {noted['batch_id']}" if noted else unnoted
    depth = "unknown" if waiting is None else str(waiting)
    queue = "confirmed by the bus" if noted or kept else "not published yet"
    if noted and not kept:
        queue += f"; still in the queue or its dead letters ({depth} waiting)"
    on_page = ", on the page" if work is bus.TELEMETRY else ""
    stored = f"stored in the cloud{on_page}" if kept else "not stored yet"
    return [
        Hop("cloud", "ingestion_dedupe", received, batch),
        Hop("cloud", work.queue, received, queue),
        Hop("cloud", _TABLES[work], _at(kept, "stored_at"), stored),
    ]


def _at(row: dict[str, Any] | None, column: str) -> datetime | None:
    return row[column] if row else None


def _reading(row: dict[str, Any]) -> str:
    return f"captured {row['metric_type']} {row['metric_value']:g} {row['unit']}"


def _delivery(row: dict[str, Any]) -> str:
    said = f"{row['status']}, attempts that failed: {row['attempt_count']}"
    trouble = row["dlq_reason"] or row["last_error_code"]
    return f"{said}, {trouble}" if trouble else said
