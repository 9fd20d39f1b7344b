"""Messages that are right in every respect; a test changes the one thing it is about."""

import json
from datetime import UTC, datetime
from typing import Any

from farmiq.messages.topics import Place

EVENT_ID = "0190a1d1-9999-7d3f-b2e4-9e8b5f8e0101"
AT = datetime(2025, 1, 2, 10, 0, tzinfo=UTC)
PLACE = Place("t-001", "f-001", "b-001", "d-010")
TOPIC = "iot/telemetry/t-001/f-001/b-001/d-010/temperature"

ABSENT = object()


def envelope(**changes: Any) -> bytes:
    """A reading as a device sends it, with fields changed, added or (ABSENT) left out."""
    whole = {
        "schema_version": "1.0",
        "event_id": EVENT_ID,
        "trace_id": "trace-201",
        "tenant_id": "t-001",
        "device_id": "d-010",
        "event_type": "telemetry.reading",
        "ts": "2025-01-02T10:00:00Z",
        "payload": {"metric_type": "temperature", "metric_value": 21.5, "unit": "C"},
    }
    return _encoded(whole, changes)


def event(**changes: Any) -> bytes:
    """The same reading as the outbox sends it and the bus carries it."""
    return _encoded(event_fields(), changes)


def event_fields() -> dict[str, Any]:
    return {
        "event_id": EVENT_ID,
        "event_type": "telemetry.ingested",
        "tenant_id": "t-001",
        "farm_id": "f-001",
        "barn_id": "b-001",
        "device_id": "d-010",
        "occurred_at": "2025-01-02T10:00:00Z",
        "trace_id": "trace-201",
        "payload": {"metric_type": "temperature", "metric_value": 21.5, "unit": "C"},
    }


def event_with_payload(payload: bytes) -> bytes:
    """An event whose payload is these bytes, JSON or not."""
    return event(payload="here").replace(b'"here"', payload)


def _encoded(whole: dict[str, Any], changes: dict[str, Any]) -> bytes:
    changed = {**whole, **changes}
    return json.dumps({k: v for k, v in changed.items() if v is not ABSENT}).encode()
