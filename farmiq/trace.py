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
    "sync_outbox": """
        select status, attempt_count, created_at, last_attempt_at, last_error_code, dlq_reason
        from sync_outbox where id = %s""",
    "quarantine": """
        select reasons, first_received_at from quarantine
        where position(convert_to(%s::text, 'UTF8') in raw) > 0""",
}
_ACCEPTED = "select event_type, batch_id, received_at from ingestion_dedupe where event_id = %s"
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
    work = _work(accepted, cloud)
    waiting = await _waiting(amqp_url, work.queue)
    return [
        *(_edge_hops(edge) if any(edge.values()) or accepted else ()),
        *_cloud_hops(work, accepted, cloud[_TABLES[work]], waiting),
    ]


def _work(accepted: dict[str, Any] | None, stored: dict[str, dict[str, Any] | None]) -> Work:
    """Whose event it is: by the table that has it, else by the type it was accepted under.

    Neither the door's memory nor the edge's lasts for ever, and what the cloud makes itself never
    came through the door.
    """
    found = next((work for work, table in _TABLES.items() if stored[table]), None)
    event_type = accepted["event_type"] if accepted else telemetry.INGESTED
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
        if raw is None and told is None:
            return hops
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
