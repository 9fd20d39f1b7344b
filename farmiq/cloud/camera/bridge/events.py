"""Pure: the events of a camera's wake, as the bus carries them (C-87).

The same wake always gives the same events with the same ids.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.messages import ids, media, telemetry
from farmiq.messages.bus import BusEvent
from farmiq.messages.media import MediaStored
from farmiq.messages.telemetry import Reading

UNITS = {
    "temperature": "°C",
    "humidity": "%",
    "pressure": "hPa",
    "gas_resistance": "Ω",
    "battery_voltage": "V",
    "wifi_rssi": "dBm",
}
# Fields of an announcement that describe the image and its transfer are not readings.
NO_READINGS = frozenset({
    "image_size", "total_chunks", "total_chunks_count", "chunk_size", "max_chunk_size",
    "first_chunk_id", "chunk_id", "captured_at", "capture_timestamp", "timestamp", "error",
    "pending", "pending_count", "pendingImg", "alive",
})  # fmt: skip
MAX_READINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """A wake whose image is stored and judged. `numbers` is whatever the camera measured.

    `occurred_at` is when it was captured, or when it arrived if the camera's clock is not believed:
    otherwise its readings would be in 1970.
    """

    observation_id: UUID
    tenant_id: str
    program_id: UUID
    site_id: UUID
    device_id: UUID
    payload_id: UUID
    image_id: UUID
    occurred_at: datetime
    numbers: Mapping[str, float]
    image_url: str
    size_bytes: int | None
    sha256: str | None


def of(wake: Wake) -> list[BusEvent]:
    events = [
        _event(wake, telemetry.INGESTED, reading.metric_type, reading) for reading in readings(wake)
    ]
    if wake.sha256 is not None and wake.size_bytes is not None:
        # The image stays in the gateway's folder: the event has its key only.
        image = MediaStored(
            media_id=wake.image_id,
            path=wake.image_url,
            object_key=wake.image_url,
            mime_type="image/jpeg",
            size_bytes=wake.size_bytes,
            sha256=wake.sha256,
            captured_at=wake.occurred_at,
        )
        events.append(_event(wake, media.STORED, "image", image))
    return events


def readings(wake: Wake) -> list[Reading]:
    """The readings of 004 come first, so that others cannot displace them."""
    names = sorted(wake.numbers, key=lambda name: (name not in UNITS, name))
    fit = (name for name in names if name not in NO_READINGS and re.match(ids.ID_PATTERN, name))
    return [
        Reading(metric_type=name, metric_value=wake.numbers[name], unit=UNITS.get(name, ""))
        for name, _ in zip(fit, range(MAX_READINGS), strict=False)
    ]


def _event(wake: Wake, event_type: str, name: str, payload: Any) -> BusEvent:
    return BusEvent(
        event_id=ids.derived(wake.occurred_at, "camera", str(wake.payload_id), event_type, name),
        event_type=event_type,
        tenant_id=wake.tenant_id,
        farm_id=str(wake.program_id),
        barn_id=str(wake.site_id),
        device_id=str(wake.device_id),
        session_id=None,
        occurred_at=wake.occurred_at,
        trace_id=f"camera-{wake.payload_id}",
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )
