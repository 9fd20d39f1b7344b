"""Pure: the events of a camera's wake, in the words that the bus carries (C-87).

The same wake gives the same events with the same ids, however often it is asked.
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
# What an announcement says of the image and its transmission is no reading.
NO_READINGS = frozenset({
    "image_size", "total_chunks", "total_chunks_count", "chunk_size", "max_chunk_size",
    "first_chunk_id", "chunk_id", "captured_at", "capture_timestamp", "timestamp", "error",
    "pending", "pending_count", "pendingImg", "alive",
})  # fmt: skip
MOST_READINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """A wake whose image is stored and was looked at. `numbers`: whatever the camera measured.

    `occurred_at` is when it was captured, or when it came if the camera's clock is not believed:
    else its readings would stand in 1970.
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
    found = [_event(wake, telemetry.INGESTED, one.metric_type, one) for one in readings(wake)]
    if wake.sha256 is not None and wake.size_bytes is not None:
        found.append(_event(wake, media.STORED, "image", _image(wake)))
    return found


def readings(wake: Wake) -> list[Reading]:
    """What 004 names comes first, so that no camera can crowd it out."""
    names = sorted(wake.numbers, key=lambda name: (name not in UNITS, name))
    fit = (name for name in names if name not in NO_READINGS and re.match(ids.ID_PATTERN, name))
    return [
        Reading(metric_type=name, metric_value=wake.numbers[name], unit=UNITS.get(name, ""))
        for name, _ in zip(fit, range(MOST_READINGS), strict=False)
    ]


def _image(wake: Wake) -> MediaStored:
    """It stays where the gateway has put it: its key is all that is told."""
    return MediaStored(
        media_id=wake.image_id,
        path=wake.image_url,
        object_key=wake.image_url,
        mime_type="image/jpeg",
        size_bytes=wake.size_bytes or 0,
        sha256=wake.sha256,
        captured_at=wake.occurred_at,
    )


def _event(wake: Wake, event_type: str, what: str, payload: Any) -> BusEvent:
    return BusEvent(
        event_id=ids.derived(wake.occurred_at, "camera", str(wake.payload_id), event_type, what),
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
