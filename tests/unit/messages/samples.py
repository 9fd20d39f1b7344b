"""One message of every type that is right in every respect, and says everything it may say."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from farmiq.messages import catalogue, topics
from farmiq.messages.topics import (
    CommandTopic,
    EventTopic,
    ReceiptTopic,
    SessionTopic,
    StatusTopic,
    TelemetryTopic,
    Topic,
)
from tests.unit.messages.examples import EVENT_ID, PLACE

SESSION_ID = UUID("018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0300")
MEDIA_ID = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0601"
AT = "2025-01-02T10:00:00Z"
SHA256 = "0123456789abcdef" * 4

_IMAGE = {
    "media_id": MEDIA_ID,
    "content_type": "image/jpeg",
    "size_bytes": 204800,
    "sha256": SHA256,
}
_INTAKE = {
    "quantity_kg": 25.5,
    "feed_lot_id": "lot-001",
    "batch_id": "flock-7",
    "replaces": MEDIA_ID,
}
_RECORD = {
    "record_id": "r-1",
    "record_type": "treatment",
    "value": 2,
    "unit": "animals",
    "product": "amoxicillin",
    "dose": 12.5,
    "dose_unit": "ml",
    "withdrawal_days": 14,
    "batch_id": "flock-7",
    "replaces": "r-0",
    "recorded_by_ref": "p-7",
    "recorded_at": AT,
}
_STATUS = {
    "state": "online",
    "last_seen_at": AT,
    "firmware_version": "2.1.0",
    "ip": "10.0.0.7",
    "signal_strength": -61,
    "health": {"camera_ok": True, "scale_ok": True, "disk_ok": False},
    "uptime_s": 86400,
    "buffer_depth": 0,
    "battery_v": 3.9,
}
_DROPPED = {
    "class": "telemetry",
    "count": 12,
    "first_seq": 100,
    "last_seq": 140,
    "reason": "buffer full",
}
_ALERT = {
    "alert_id": MEDIA_ID,
    "code": "ingress.impostor",
    "subject": f"{PLACE.farm_id}/{PLACE.barn_id}/{PLACE.device_id}",
    "severity": "security",
    "first_at": AT,
    "last_at": AT,
    "count": 3,
    "message": "messages on this device's topic speak for somebody else",
    "edge_cluster_id": "edge-01",
}

BY_DEVICES: dict[str, dict[str, Any]] = {
    "telemetry.reading": {"metric_type": "temperature", "metric_value": 21.5, "unit": "C"},
    "feed.dispensed": {**_INTAKE, "source": "SILO_AUTO"},
    "feed.imported": {
        "rows": [
            {**_INTAKE, "ref": "row 1"},
            {"feed_lot_id": "lot-002", "quantity_kg": 12, "ref": "row 2"},
            {"feed_lot_id": "lot-002", "quantity_kg": 0, "ref": "row 3"},
        ]
    },
    "barn.record.created": _RECORD,
    "device.buffer.dropped": _DROPPED,
    "device.status": _STATUS,
    "weighvision.session.created": {"batch_id": "flock-7", "initial_weight_kg": 120.5},
    "weighvision.weight.recorded": {"weight_kg": 120.5},
    "weighvision.image.captured": _IMAGE,
    "weighvision.session.finalized": {"image_count": 3, "final_weight_kg": 121.0},
    "weighvision.session.cancelled": {"reason": "the animal left"},
    "device.command": {"command_id": "c-1", "args": {"since": AT}, "expires_at": AT},
    "device.command.answered": {"command_id": "c-1", "outcome": "applied", "message": "done"},
    "device.receipt": {
        "event_ids": [EVENT_ID],
        "rejected": [{"event_id": MEDIA_ID, "reason": "no"}],
    },
}

ON_THE_BUS: dict[str, dict[str, Any]] = {
    "telemetry.ingested": BY_DEVICES["telemetry.reading"],
    "telemetry.aggregated": {
        "metric_type": "temperature",
        "aggregation_window": "1h",
        "avg_value": 25.8,
        "min_value": 24.5,
        "max_value": 27.2,
        "unit": "C",
        "count": 60,
        "bucket_start_at": AT,
        "bucket_end_at": "2025-01-02T11:00:00Z",
    },
    "weighvision.session.created": {
        "status": "created",
        "batch_id": "flock-7",
        "initial_weight_kg": 120.5,
    },
    "weighvision.weight.recorded": {"weight_kg": 120.5},
    "weighvision.image.captured": _IMAGE,
    "weighvision.session.finalized": {
        "status": "finalized",
        "final_weight_kg": 121.0,
        "image_count": 3,
        "inference_result_id": MEDIA_ID,
    },
    "weighvision.session.cancelled": {"status": "cancelled", "reason": "the animal left"},
    "weighvision.session.incomplete": {
        "session_id": str(SESSION_ID),
        "missing": ["weight", "image (announced, not uploaded)"],
        "since": AT,
        "station_id": "station-1",
    },
    "media.stored": {
        "media_id": MEDIA_ID,
        "path": "tenants/t-001/frame-001.jpg",
        "mime_type": "image/jpeg",
        "size_bytes": 204800,
        "bucket": "farmiq",
        "object_key": "tenants/t-001/frame-001.jpg",
        "sha256": SHA256,
    },
    "inference.completed": {
        "inference_result_id": MEDIA_ID,
        "predicted_weight_kg": 121.3,
        "confidence": 0.94,
        "model_version": "weighvision-v1.2.0",
        "low_kg": 112.0,
        "high_kg": 131.0,
        "reason": None,
        "is_shadow": False,
        "shadow_weight_kg": None,
        "frames_used": 3,
        "n_train": 40,
        "cv_mape": 0.041,
        "baseline_mape": 0.087,
        "media_id": None,
    },
    "sync.batch.sent": {"batch_id": "batch-1", "event_count": 500, "edge_cluster_id": "edge-01"},
    "sync.batch.acked": {"batch_id": "batch-1", "event_count": 500, "status": "acked"},
    "feed.intake.recorded": {**_INTAKE, "source": "MANUAL"},
    "feed.lot.received": {
        "feed_lot_id": "lot-001",
        "quantity_kg": 5000,
        "feed_product_id": "grower",
        "replaces": MEDIA_ID,
    },
    "barn.record.created": _RECORD,
    "kpi.daily.updated": {
        "kpi_date": "2025-01-02",
        "kpi_type": "fcr",
        "value": 1.62,
        "unit": "kg/kg",
        "source_event_count": 40,
    },
    "device.status": _STATUS,
    "device.buffer.dropped": _DROPPED,
    "edge.alert.opened": _ALERT,
    "edge.alert.closed": {**_ALERT, "closed_by": "edge"},
}


@dataclass(frozen=True, slots=True)
class Sample:
    topic: str
    envelope: dict[str, Any]


def from_device(event_type: str, carrier: type[Topic] | None = None) -> Sample:
    """The message of this type on the first kind of topic that carries it, or on `carrier`."""
    kind = carrier or catalogue.MQTT[event_type].topics[0]
    return Sample(
        topic_of(kind, event_type),
        {
            "schema_version": "1.0",
            "event_id": EVENT_ID,
            "trace_id": "trace-201",
            "tenant_id": PLACE.tenant_id,
            "device_id": PLACE.device_id,
            "event_type": event_type,
            "ts": AT,
            "payload": BY_DEVICES[event_type],
            "seq": 7,
            "boot_id": "boot-1",
            "content_hash": "ab",
        },
    )


def topic_of(kind: type[Topic], event_type: str) -> str:
    station = (PLACE.tenant_id, PLACE.farm_id, PLACE.barn_id, "station-1")
    built = {
        TelemetryTopic: topics.telemetry(PLACE, "temperature"),
        EventTopic: topics.event(PLACE, event_type),
        StatusTopic: topics.status(PLACE),
        SessionTopic: topics.session(SessionTopic(*station, SESSION_ID, event_type)),
        CommandTopic: topics.command(PLACE, "edge.restored"),
        ReceiptTopic: topics.receipts(PLACE),
    }
    return built[kind]


def on_the_bus(event_type: str) -> dict[str, Any]:
    optional = catalogue.BUS[event_type].place_optional
    return {
        "event_id": EVENT_ID,
        "event_type": event_type,
        "tenant_id": PLACE.tenant_id,
        "farm_id": None if optional else PLACE.farm_id,
        "barn_id": None if optional else PLACE.barn_id,
        "device_id": None if optional else PLACE.device_id,
        "session_id": str(SESSION_ID) if event_type.startswith("weighvision.") else None,
        "occurred_at": AT,
        "trace_id": "trace-201",
        "payload": ON_THE_BUS[event_type],
    }
