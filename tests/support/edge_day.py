"""A day at an edge without internet, as rows: sensors, weighings, a backlog, rejected messages."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from farmiq.edge import api_keys, pins
from farmiq.messages.topics import Place
from farmiq.plumbing import ids
from tests.support import devices

TENANT, FARM = "valley", "valley-farm"
OTHER = "t-2"
NAME, PIN = "anna", "482913"
WAITING = 120
PLACES = [
    Place(TENANT, FARM, barn, device)
    for barn, device in (
        ("barn-1", "climate-1"), ("barn-1", "silo-1"), ("barn-1", "scale-1"),
        ("barn-2", "climate-2"), ("barn-2", "silo-2"),
    )
]  # fmt: skip
METRICS = {
    "temperature": ("°C", 24.6),
    "humidity": ("%", 61.0),
    "co2": ("ppm", 1240.0),
    "ammonia": ("ppm", 7.4),
}


@dataclass(frozen=True, slots=True)
class Day:
    """What a test needs to know of it."""

    readable_id: UUID
    broken_id: UUID
    others_id: UUID
    incomplete_id: UUID
    others_session_id: UUID


def add_key(url: str, name: str = NAME, role: str = "operator", **scope: Any) -> str:
    """A key with the PIN above, of this name."""
    key = api_keys.new_key()
    with psycopg.connect(url) as owner:
        owner.execute(
            "insert into api_keys (api_key_id, name, role, key_sha256, tenant_id, areas, "
            "pin_bcrypt) values (%s, %s, %s, %s, %s, %s, %s)",
            (
                ids.new(), name, role, api_keys.digest(key), scope.get("tenant"),
                scope.get("areas"), pins.hashed(scope.get("pin", PIN)),
            ),
        )  # fmt: skip
    return key


def fill(url: str, *, now: datetime | None = None) -> Day:
    """`url` is the owner's login."""
    at = now or datetime.now(UTC)
    devices.register(url, [devices.at(place, heartbeat_s=60) for place in PLACES])
    with psycopg.connect(url) as owner:
        _farm(owner, at)
        _device_states(owner, at)
        _readings(owner, at)
        incomplete_id, others_session_id = _weighings(owner, at)
        _backlog(owner, at)
        _alerts(owner, at)
        _losses_and_commands(owner, at)
        readable, broken, others = _rejected(owner, at)
        owner.execute("truncate audit_log")
    return Day(readable, broken, others, incomplete_id, others_session_id)


def _farm(owner: psycopg.Connection, at: datetime) -> None:
    owner.execute(
        "insert into cloud_farms values (%s, %s, 'Green Valley', 'Asia/Bangkok')", (TENANT, FARM)
    )
    owner.execute(
        "insert into cloud_batches values (%s, 'flock-7', %s, 'barn-1', %s, null, 10000)",
        (TENANT, FARM, (at - timedelta(days=20)).date()),
    )
    owner.execute(
        "insert into cloud_contexts values (%s, 'e', '{}', %s, %s)",
        (TENANT, at - timedelta(days=1), at - timedelta(hours=3)),
    )


def _device_states(owner: psycopg.Connection, at: datetime) -> None:
    for place in PLACES:
        is_silent = place.device_id == "climate-2"
        owner.execute(
            "insert into device_state (tenant_id, device_id, state, since, last_seen_at, "
            "firmware_version, buffer_depth, battery_v, signal_strength, uptime_s, health) values "
            "(%s, %s, %s, %s, %s, '2.1.0', %s, 3.9, -61, 7200, '{\"scale_ok\": false}')",
            (
                TENANT, place.device_id, "offline" if is_silent else "online",
                at - timedelta(hours=2), at - timedelta(hours=2 if is_silent else 0),
                340 if is_silent else 0,
            ),
        )  # fmt: skip


def _readings(owner: psycopg.Connection, at: datetime) -> None:
    minute = at.replace(second=0, microsecond=0)
    for place in (place for place in PLACES if place.device_id.startswith("climate")):
        late = timedelta(hours=2) if place.device_id == "climate-2" else timedelta()
        for metric, (unit, value) in METRICS.items():
            owner.execute(
                "insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, "
                "barn_id, event_id, metric_value, unit, occurred_at, ingested_at, clock_suspect) "
                "values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, false)",
                (
                    TENANT, place.device_id, metric, FARM, place.barn_id, ids.new(), value, unit,
                    at - late, at - late,
                ),
            )  # fmt: skip
            for n in range(55):
                # A gap in the middle: nothing came for ten minutes.
                if 20 <= n < 30:
                    continue
                mean = value * (1 + 0.01 * ((n * 7) % 5 - 2))
                begin = minute - late - timedelta(minutes=n)
                owner.execute(
                    "insert into telemetry_agg (id, tenant_id, farm_id, barn_id, device_id, "
                    '"window", bucket_start_at, bucket_end_at, metric_type, unit, avg_value, '
                    "min_value, max_value, sum_value, count) values (%s, %s, %s, %s, %s, '1m', "
                    "%s, %s, %s, %s, %s, %s, %s, %s, 6)",
                    (
                        ids.new(), TENANT, FARM, place.barn_id, place.device_id, begin,
                        begin + timedelta(minutes=1), metric, unit, mean, mean * 0.98,
                        mean * 1.02, mean * 6,
                    ),
                )  # fmt: skip


def _weighings(owner: psycopg.Connection, at: datetime) -> tuple[UUID, UUID]:
    incomplete_id = ids.new()
    for n in range(9):
        session_id = incomplete_id if n == 0 else ids.new()
        begin = at - timedelta(seconds=40 * (n + 1))
        owner.execute(
            "insert into weight_sessions (id, tenant_id, farm_id, barn_id, device_id, station_id, "
            "batch_id, status, start_at, end_at, initial_weight_kg, final_weight_kg, image_count, "
            "received_at, heard_at, is_incomplete, incomplete_reason, incomplete_at) values "
            "(%s, %s, %s, 'barn-1', 'scale-1', 'station-1', 'flock-7', 'finalized', %s, %s, "
            "%s, %s, 1, %s, %s, %s, %s, %s)",
            (
                session_id, TENANT, FARM, begin, begin, 2.1 + n / 50, 2.1 + n / 50, begin, begin,
                n == 0, "the image has not arrived" if n == 0 else None, at if n == 0 else None,
            ),
        )  # fmt: skip
        for kind in ("session.created", "weight.recorded", "session.finalized"):
            owner.execute(
                "insert into weight_session_events (tenant_id, event_id, session_id, event_type, "
                "occurred_at, weight_kg, received_at) values (%s, %s, %s, %s, %s, %s, %s)",
                (
                    TENANT, ids.new(), session_id, f"weighvision.{kind}", begin, 2.1 + n / 50,
                    begin,
                ),
            )  # fmt: skip
    others_id = ids.new()
    owner.execute(
        "insert into weight_sessions (id, tenant_id, farm_id, barn_id, device_id, station_id, "
        "start_at, final_weight_kg, status) values (%s, %s, 'f-1', 'b-1', 'd-1', "
        "'secret-station', %s, 99.9, 'finalized')",
        (others_id, OTHER, at),
    )
    owner.execute(
        "insert into weight_session_events (tenant_id, event_id, session_id, event_type, "
        "occurred_at, weight_kg) values (%s, %s, %s, 'weighvision.weight.recorded', %s, 99.9)",
        (OTHER, ids.new(), others_id, at),
    )
    return incomplete_id, others_id


def _backlog(owner: psycopg.Connection, at: datetime) -> None:
    owner.execute(
        "insert into sync_state (tenant_id, last_acked_at, consecutive_failures, paused_until, "
        "last_error_code, last_error_message) values (%s, %s, 12, %s, 'NO_ANSWER', "
        "'the name of the cloud could not be found')",
        (TENANT, at - timedelta(hours=3), at + timedelta(seconds=20)),
    )
    for n in range(WAITING):
        _owe(owner, TENANT, at - timedelta(minutes=n), "pending", None)
    _owe(owner, TENANT, at - timedelta(hours=30), "dlq", "the batch is not known")
    _owe(owner, OTHER, at, "dlq", "secret reason")


def _owe(
    owner: psycopg.Connection, tenant_id: str, at: datetime, status: str, reason: str | None
) -> None:
    owner.execute(
        "insert into sync_outbox (id, tenant_id, farm_id, barn_id, device_id, event_type, "
        "occurred_at, payload_json, status, dlq_reason, failed_at, created_at) values "
        "(%s, %s, 'f', 'b', 'd', 'telemetry.ingested', %s, '{}', %s, %s, %s, %s)",
        (ids.new(), tenant_id, at, status, reason, at if reason else None, at),
    )


def _alerts(owner: psycopg.Connection, at: datetime) -> None:
    for subject, severity, message in (
        (f"{TENANT}/{FARM}/barn-1", "critical", "temperature has been above 30 °C for 5 minutes"),
        (f"{OTHER}/f-1/b-1", "critical", "a secret of another tenant"),
    ):
        owner.execute(
            "insert into alerts (alert_id, kind, subject, severity, message, raised_at, "
            "last_seen_at) values (%s, 'rule.too-hot', %s, %s, %s, %s, %s)",
            (ids.new(), subject, severity, message, at - timedelta(minutes=9), at),
        )


def _losses_and_commands(owner: psycopg.Connection, at: datetime) -> None:
    owner.execute(
        "insert into loss_ledger (loss_id, tenant_id, farm_id, barn_id, device_id, class, count, "
        "first_seq, last_seq, reason, occurred_at) values (%s, %s, %s, 'barn-2', 'climate-2', "
        "'telemetry', 12, 40, 51, 'its buffer was full', %s)",
        (ids.new(), TENANT, FARM, at - timedelta(hours=3)),
    )
    owner.execute(
        "insert into device_commands (command_id, tenant_id, device_id, name, args, state, "
        "message, created_by, created_at, expires_at) values (%s, %s, 'climate-2', 'reboot', "
        "'{}', 'expired', 'no answer', 'anna', %s, %s)",
        (ids.new(), TENANT, at - timedelta(hours=1), at - timedelta(minutes=50)),
    )


def add_entries(url: str) -> tuple[str, str]:
    """Deaths and feed that anna entered yesterday; ids by which corrections name them."""
    record_id, intake_id, at = ids.new(), ids.new(), datetime.now(UTC) - timedelta(days=1)
    with psycopg.connect(url) as owner:
        owner.execute(
            "insert into barn_records (event_id, tenant_id, farm_id, barn_id, record_id, "
            "record_type, value_number, recorded_by_ref, recorded_at, occurred_at) values "
            "(%s, %s, %s, 'barn-1', %s, 'mortality', 4, 'anna', %s, %s)",
            (record_id, TENANT, FARM, str(record_id), at, at),
        )
        owner.execute(
            "insert into feed_intakes (intake_id, tenant_id, farm_id, barn_id, source, "
            "quantity_kg, occurred_at, recorded_by) values (%s, %s, %s, 'barn-1', 'MANUAL', 320, "
            "%s, 'anna')",
            (intake_id, TENANT, FARM, at),
        )
    return str(record_id), str(intake_id)


def message(tenant_id: str, at: datetime, value: object) -> tuple[str, bytes]:
    """A reading of climate-1 as a device sends it: (topic, bytes)."""
    event_id = str(ids.new())
    body = {
        "schema_version": "1.0", "event_id": event_id, "trace_id": event_id,
        "tenant_id": tenant_id, "device_id": "climate-1", "event_type": "telemetry.reading",
        "ts": at.isoformat(), "payload": {"value": value, "unit": "°C"},
    }  # fmt: skip
    topic = f"iot/telemetry/{tenant_id}/{FARM}/barn-1/climate-1/temperature"
    return topic, json.dumps(body).encode()


def _rejected(owner: psycopg.Connection, at: datetime) -> tuple[UUID, UUID, UUID]:
    """One that is valid by now, one that never will be, and one of another tenant."""
    found = []
    for tenant_id, value, kind, reasons in (
        (TENANT, 21.5, "not_recorded", ["NOT_RECORDED: this version has no table for it"]),
        (TENANT, "warm", "format", ["payload.value: not a number", "payload.unit: is missing"]),
        (OTHER, 1.0, "format", ["a secret reason"]),
    ):
        topic, raw = message(tenant_id, at, value)
        row_id = ids.new()
        owner.execute(
            "insert into quarantine (quarantine_id, topic, raw, message_sha256, raw_size_bytes, "
            "reasons, kind, gist, first_received_at, last_received_at) values "
            "(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                row_id, topic, raw, hashlib.sha256(topic.encode() + b"\0" + raw).digest(),
                len(raw), reasons, kind, reasons[0], at, at,
            ),
        )  # fmt: skip
        found.append(row_id)
    return found[0], found[1], found[2]
