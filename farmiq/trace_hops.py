"""Pure: the hops of one event, from the rows that were found of it; see trace.py."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from farmiq.cloud import bus
from farmiq.cloud.bus import Work
from farmiq.cloud.deadletter.rules import BusDeadLetter
from farmiq.edge.sync import rules
from farmiq.messages import telemetry

TABLES = {
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
Rows = dict[str, dict[str, Any] | None]


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


def is_delivered(hops: Sequence[Hop]) -> bool:
    """Whether the event has been at the last place that could be looked at."""
    return next((hop.at is not None for hop in reversed(hops) if hop.is_visible), False)


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


def unseen(site: str, why: str) -> Hop:
    return Hop(site, "database", None, f"not looked at: {why}", is_visible=False)


def work_of(known: dict[str, Any] | None, stored: dict[str, dict[str, Any] | None]) -> Work:
    """Whose event it is: by the table that has it, else by its type in the outbox or at ingestion.

    Neither ingress nor the edge remembers ids for ever, and what the cloud makes itself never
    came through ingestion.
    """
    stored_by = next((work for work, table in TABLES.items() if stored[table]), None)
    event_type = known["event_type"] if known else telemetry.INGESTED
    named = next(
        (work for work in (*bus.SINKS, bus.EDGE) if event_type in work.event_types), bus.TELEMETRY
    )
    return stored_by or named


def edge_hops(edge: Rows, accepted: dict[str, Any] | None, *, arrived: bool) -> list[Hop]:
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
        by_itself = arrived or not goes_in_aggregates(edge)
        note = f"stored at the edge; {_unowed(raw, by_itself=by_itself)}"
        return [*hops, Hop("edge", "telemetry_raw", raw["ingested_at"], note)]
    if raw or event_type == telemetry.INGESTED:
        hops.append(Hop("edge", "telemetry_raw", _at(raw, "ingested_at"), "stored at the edge"))
    return [*hops, *_outbox_hops(pending, edge["sync_state"])]


def goes_in_aggregates(edge: Rows) -> bool:
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


def became(edge: Rows, cloud: Rows) -> list[Hop]:
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


def cloud_hops(
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
    return Hop("cloud", TABLES[work], _at(stored_row, "stored_at"), stored)


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
