"""Pure: a farm, its barns and sensors, and what each would read at a given moment."""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from farmiq.messages import telemetry, topics
from farmiq.messages.envelope import SCHEMA_VERSION, Envelope
from farmiq.messages.topics import Place
from farmiq.simulate import check

HOURS_PER_DAY = 24.0
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Metric:
    """A daily curve: `middle` ± `swing`, highest at `peak_hour`, `noise` on top."""

    name: str
    unit: str
    middle: float
    swing: float
    peak_hour: float
    noise: float
    decimals: int = 1


@dataclass(frozen=True, slots=True)
class Device:
    place: Place
    metrics: tuple[Metric, ...]
    flaky: bool = False


CLIMATE = (
    Metric("temperature", "°C", 24.0, 4.0, 15.0, 0.1),
    Metric("humidity", "%", 62.0, 9.0, 5.0, 0.3),
    Metric("co2", "ppm", 1400.0, 350.0, 4.0, 12.0, 0),
)
WATER = (Metric("water.flow", "l/min", 6.0, 5.0, 13.0, 0.3),)
SILO = (Metric("silo.weight", "kg", 4200.0, 900.0, 6.0, 4.0, 0),)


def farm(
    tenant_id: str, *, barns: int, farm_id: str = "hill-farm", steady: bool = False
) -> list[Device]:
    """Three devices a barn: climate, water, silo.

    The last barn hangs on a flaky link, unless there is only one or the farm is to be steady.
    """
    devices = []
    for number in range(1, barns + 1):
        barn_id = f"barn-{number}"
        for kind, metrics in (("climate", CLIMATE), ("water", WATER), ("silo", SILO)):
            place = Place(tenant_id, farm_id, barn_id, f"{barn_id}-{kind}")
            devices.append(Device(place, metrics, flaky=number == barns > 1 and not steady))
    return devices


def value(metric: Metric, *, at: datetime, chance: float, day_s: float = DAY_S) -> float:
    """What the metric reads at a moment; `chance` in [0, 1) is its noise.

    `day_s` is how long a day lasts: a demo wants to see the curve within minutes.
    """
    hour = at.timestamp() % day_s / day_s * HOURS_PER_DAY
    wave = math.cos((hour - metric.peak_hour) / HOURS_PER_DAY * 2 * math.pi)
    noise = (chance * 2 - 1) * metric.noise
    return round(max(0.0, metric.middle + metric.swing * wave + noise), metric.decimals)


class Sending(NamedTuple):
    """A message ready to go, and what the journal says of it."""

    event_id: UUID
    topic: str
    raw: bytes
    content: str


def message(
    device: Device,
    metric: Metric,
    *,
    at: datetime,
    event_id: UUID,
    seq: int,
    chance: float,
    day_s: float = DAY_S,
) -> Sending:
    """One reading of one metric."""
    reading = telemetry.Reading(
        metric_type=metric.name,
        metric_value=value(metric, at=at, chance=chance, day_s=day_s),
        unit=metric.unit,
    )
    return Sending(
        event_id,
        topics.telemetry(device.place, metric.name),
        wrapped(device, telemetry.READING, reading, event_id=event_id, at=at, seq=seq),
        check.content(
            device_id=device.place.device_id,
            metric_type=reading.metric_type,
            metric_value=reading.metric_value,
            unit=reading.unit,
            occurred_at=at,
        ),
    )


def wrapped(
    device: Device,
    kind: str,
    payload: msgspec.Struct,
    *,
    event_id: UUID,
    at: datetime,
    seq: int | msgspec.UnsetType = msgspec.UNSET,
) -> bytes:
    """A payload in the envelope of the device."""
    return msgspec.json.encode(
        Envelope(
            schema_version=SCHEMA_VERSION,
            event_id=event_id,
            trace_id=f"trace-{event_id}",
            tenant_id=device.place.tenant_id,
            device_id=device.place.device_id,
            event_type=kind,
            ts=at,
            payload=msgspec.Raw(msgspec.json.encode(payload)),
            seq=seq,
        )
    )
