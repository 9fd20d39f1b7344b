"""Pure: a farm, its barns and sensors, and what each would read at a given moment."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import msgspec

from farmiq.lab.simulate import check
from farmiq.lab.simulate.life.flocks import FLOCKS, SILO_KG, Now
from farmiq.messages import barn, feed, telemetry, topics
from farmiq.messages.envelope import SCHEMA_VERSION, Envelope
from farmiq.messages.topics import Place

HOURS_PER_DAY = 24.0
DAY_S = 86_400.0
MINUTES_PER_DAY = 1440.0


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
class Level:
    """What a silo holds: full after a refill, then `eaten` less a day, between morning and night.

    `noise` is on top. A refill comes every `refill_days`, while the animals sleep.
    """

    name: str
    unit: str
    full: float
    eaten: float
    refill_days: int
    noise: float
    decimals: int = 1


@dataclass(frozen=True, slots=True)
class Supply:
    """What the silo of a flock holds: so much at a moment, then less, in the time of the clock.

    Feed adds up over days, so it must not pass quicker than they do. An empty silo is filled.
    """

    name: str
    unit: str
    held: float
    at: datetime
    eaten: float
    noise: float
    decimals: int = 1


@dataclass(frozen=True, slots=True)
class Habit:
    """An event that a device sends in every so many rounds of its readings.

    `amount` is what one says in the mean: kilograms of feed, of the lot `lot`, or deaths.
    """

    event_type: str
    every: int
    amount: float
    lot: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    place: Place
    metrics: tuple[Metric | Level | Supply, ...]
    flaky: bool = False
    habits: tuple[Habit, ...] = ()


CLIMATE = (
    Metric("temperature", "°C", 24.0, 4.0, 15.0, 0.1),
    Metric("humidity", "%", 62.0, 9.0, 5.0, 0.3),
    Metric("co2", "ppm", 1400.0, 350.0, 4.0, 12.0, 0),
)
WATER = (Metric("water.flow", "l/min", 6.0, 5.0, 13.0, 0.3),)
SILO = (Level("silo.weight", "kg", 5200.0, 900.0, 4, 4.0),)
FEEDING = Habit(feed.DISPENSED, every=10, amount=25.0)
NOTING = Habit(barn.RECORD_CREATED, every=60, amount=0.2)

MORNING, NIGHT = 5.0, 21.0


def farm(
    tenant_id: str,
    *,
    barns: int,
    farm_id: str = "hill-farm",
    steady: bool = False,
    flocks: Mapping[str, Now] = MappingProxyType({}),
    interval_s: float = 1.0,
) -> list[Device]:
    """Three devices a barn: climate, water, silo; behind them those that tell of what happened.

    Every other barn has a feeder, and in the first somebody writes down what they see.
    The last barn hangs on a flaky link, unless there is only one or the farm is to be steady.
    A barn with one of the `flocks` goes on as its flock is now; `interval_s` is between readings.
    """
    devices, tellers = [], []
    for number in range(1, barns + 1):
        barn_id = f"barn-{number}"
        flock = flocks.get(barn_id)
        for kind, metrics in _metrics(flock).items():
            place = Place(tenant_id, farm_id, barn_id, f"{barn_id}-{kind}")
            devices.append(Device(place, metrics, flaky=number == barns > 1 and not steady))
        for kind, habit in _recorders_in(number):
            place = Place(tenant_id, farm_id, barn_id, f"{barn_id}-{kind}")
            flaky = number == barns > 1 and not steady
            habits = (_paced(habit, flock, interval_s) if flock else habit,)
            tellers.append(Device(place, (), flaky=flaky, habits=habits))
    return [*devices, *tellers]


def _metrics(flock: Now | None) -> dict[str, tuple[Metric | Level | Supply, ...]]:
    if flock is None:
        return {"climate": CLIMATE, "water": WATER, "silo": SILO}
    temperature, humidity, co2 = CLIMATE
    (water,), (silo,) = WATER, SILO
    flow = flock.water_l_per_day / MINUTES_PER_DAY
    supply = Supply(
        silo.name, silo.unit, flock.silo_kg, flock.at, flock.feed_kg_per_day, silo.noise
    )
    return {
        "climate": (
            replace(temperature, middle=flock.temperature_c, swing=1.5),
            replace(humidity, swing=7.0),
            replace(co2, middle=flock.co2_ppm, swing=150.0),
        ),
        "water": (replace(water, middle=flow, swing=0.8 * flow, noise=0.05 * flow, decimals=3),),
        "silo": (supply,),
    }


def _paced(habit: Habit, flock: Now, interval_s: float) -> Habit:
    """What the flock eats and how many die in the time between two events."""
    days = habit.every * interval_s / DAY_S
    if habit.event_type == feed.DISPENSED:
        return replace(habit, amount=flock.feed_kg_per_day * days, lot=flock.lot)
    return replace(habit, amount=flock.deaths_per_day * days)


@dataclass(frozen=True, slots=True)
class Station:
    """A weigh station: its agent is a device (simulate/stations.py)."""

    place: Place
    station_id: str


def stations(tenant_id: str, *, barns: int, farm_id: str = "hill-farm") -> list[Station]:
    """A scale in each barn that has a flock in the life of a farm (life/flocks.py)."""
    return [
        Station(
            Place(tenant_id, farm_id, f"barn-{number}", f"barn-{number}-station"),
            f"barn-{number}-scale",
        )
        for number in range(1, min(barns, FLOCKS) + 1)
    ]


def _recorders_in(barn: int) -> list[tuple[str, Habit]]:
    feeder = [("feeder", FEEDING)] if barn % 2 else []
    return [*feeder, ("tablet", NOTING)] if barn == 1 else feeder


def value(
    metric: Metric | Level | Supply, *, at: datetime, chance: float, day_s: float = DAY_S
) -> float:
    """What the metric reads at a moment; `chance` in [0, 1) is its noise.

    `day_s` is how long a day lasts: a demo wants to see the curve within minutes.
    """
    days, day = divmod(at.timestamp(), day_s)
    hour = day / day_s * HOURS_PER_DAY
    noise = (chance * 2 - 1) * metric.noise
    if isinstance(metric, Supply):
        eaten = metric.eaten * (at - metric.at).total_seconds() / DAY_S
        return round(max(0.0, (metric.held - eaten) % SILO_KG + noise), metric.decimals)
    if isinstance(metric, Level):
        return round(max(0.0, held(metric, days=int(days), hour=hour) + noise), metric.decimals)
    wave = math.cos((hour - metric.peak_hour) / HOURS_PER_DAY * 2 * math.pi)
    return round(max(0.0, metric.middle + metric.swing * wave + noise), metric.decimals)


def held(silo: Level, *, days: int, hour: float) -> float:
    """The weight without noise; `days` counts midnights since any moment."""
    of_today = min(1.0, max(0.0, (hour - MORNING) / (NIGHT - MORNING)))
    return silo.full - silo.eaten * (days % silo.refill_days + of_today)


class Sending(NamedTuple):
    """A message ready to go, and what the journal says of it."""

    event_id: UUID
    topic: str
    raw: bytes
    content: str


def message(
    device: Device,
    metric: Metric | Level | Supply,
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


def happening(
    device: Device, habit: Habit, *, at: datetime, event_id: UUID, seq: int, chance: float
) -> Sending:
    """The event of this habit: feed dispensed, or a record of the barn."""
    payload: feed.FeedDispensed | barn.BarnRecordCreated
    if habit.event_type == feed.DISPENSED:
        quantity_kg = round(habit.amount * (0.8 + 0.4 * chance), 3)
        lot = habit.lot or f"lot-{at:%Y-%m}"
        payload = feed.FeedDispensed(quantity_kg=quantity_kg, feed_lot_id=lot)
        content = check.intake(
            device_id=device.place.device_id,
            source="SILO_AUTO",
            feed_lot_id=lot,
            quantity_kg=quantity_kg,
            occurred_at=at,
        )
    else:
        payload = barn.BarnRecordCreated(
            record_id=f"record-{event_id}",
            record_type="mortality",
            value=float(chance > 1 - habit.amount),
            unit="animals",
            recorded_by_ref="somebody",
            recorded_at=at,
        )
        content = check.record(
            device_id=device.place.device_id,
            record_id=payload.record_id,
            record_type=payload.record_type,
            value=payload.value,
            recorded_at=at,
        )
    return Sending(
        event_id,
        topics.event(device.place, habit.event_type),
        wrapped(device, habit.event_type, payload, event_id=event_id, at=at, seq=seq),
        content,
    )
