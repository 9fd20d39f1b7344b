"""Pure: the events that a farm's edge would have sent about its life, and the truth beside them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from farmiq.lab.simulate.life import flocks
from farmiq.lab.simulate.life.flocks import Flock, Life, Plan, Standard
from farmiq.messages import barn, feed, ids, telemetry, weighvision
from farmiq.messages.bus import BusEvent

WEIGHINGS = 20
# Two birds on the scale at once, which no scale of this kind can tell.
PAIRS = 0.015
# A day without power, for some hours, in one of so many.
OUTAGES = 0.04
_OUTAGE_H = range(9, 14)
_HOUR = timedelta(hours=1)
# Readings of what changes slowly, and of what no figure is made, come in each sixth hour.
_SELDOM_H, _HOURLY = 6, 3
_FIRST_WEIGHING_H, _LAST_WEIGHING_H = 5.0, 19.0
_FEEDINGS = ((5, 0.2), (8, 0.15), (11, 0.15), (14, 0.15), (17, 0.2), (20, 0.15))
_DELIVERY_H, _DEATHS_H, _TREATMENT_H, _CULLS_H, _WATER_H, _COUNT_H = 4, 7, 8, 16, 21, 22
# In the barn that is run by hand, entries of these ages were wrong and put right.
_WRONG_FEED_AGE, _WRONG_DEATHS_AGE = 6, 9
_BY_HAND_KG = 12.0


@dataclass(frozen=True, slots=True)
class Day:
    """What is true of a flock on a local date, as far as it happened before the history's end.

    `mean_kg` is the flock's own mean at the moments of its weighings, without the sample's error;
    `weighed` counts the birds that stood on the scale alone, `hours` those with readings.
    `safe_from` is the first date on which selling is allowed.
    """

    batch_id: str
    on: date
    age_days: int
    dead: int
    culled: int
    head: int
    feed_kg: float
    water_l: float
    mean_kg: float | None
    weighed: int
    hours: int
    safe_from: date | None


class Act(NamedTuple):
    """Something that happened, and how it counts: (name of a sum of the day, amount)."""

    at: datetime
    kind: str
    device: str
    payload: dict[str, Any]
    what: str = ""
    counts: tuple[str, float] = ("", 0.0)
    session_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Lived:
    day: Day
    events: list[BusEvent]


def lived(life: Life, expected: Standard) -> Iterator[Lived]:
    """Every day of every flock until the history's end, date by date."""
    streams = [_of_flock(life, flock, expected) for flock in life.flocks]
    days = [next(stream, None) for stream in streams]
    while left := [day.day.on for day in days if day is not None]:
        for number, day in enumerate(days):
            if day is not None and day.day.on == min(left):
                yield day
                days[number] = next(streams[number], None)


def _of_flock(life: Life, flock: Flock, expected: Standard) -> Iterator[Lived]:
    safe_from: date | None = None
    for plan in flocks.plans(life, flock, expected):
        if plan.on > life.today:
            return
        day = _Day(life, flock, expected, plan)
        acts = [act for act in day.acts() if act.at <= life.until]
        for act in acts:
            if act.counts[0] == "withdrawal":
                until = plan.on + timedelta(days=int(act.counts[1]))
                safe_from = max(safe_from or until, until)
        yield Lived(day.truth(acts, safe_from), [day.event(act) for act in acts])


@dataclass(frozen=True, slots=True)
class _Day:
    life: Life
    flock: Flock
    expected: Standard
    plan: Plan

    def acts(self) -> list[Act]:
        return sorted(
            [*self._readings(), *self._feed(), *self._records(), *self._weighings()],
            key=lambda act: act.at,
        )

    def truth(self, acts: list[Act], safe_from: date | None) -> Day:
        def total(name: str) -> float:
            return sum(act.counts[1] for act in acts if act.counts[0] == name)

        dead, culled = int(total("dead")), int(total("culled"))
        weighed = sum(act.counts[0] == "mean_kg" for act in acts)
        by_hand = [act for act in acts if act.counts[0] == "water_by_hand_l"]
        return Day(
            batch_id=self.flock.batch_id,
            on=self.plan.on,
            age_days=self.plan.age_days,
            dead=dead,
            culled=culled,
            head=self.plan.head - dead - culled - int(total("uncounted")),
            feed_kg=total("feed_kg"),
            water_l=total("water_by_hand_l") if by_hand else total("water_l"),
            mean_kg=total("mean_kg") / weighed if weighed else None,
            weighed=weighed,
            hours=len({act.at for act in acts if act.kind == telemetry.INGESTED}),
            safe_from=safe_from,
        )

    def event(self, act: Act) -> BusEvent:
        return BusEvent(
            event_id=self._id(act),
            event_type=act.kind,
            tenant_id=self.life.tenant_id,
            farm_id=self.life.farm_id,
            barn_id=self.flock.barn_id,
            device_id=f"{self.flock.barn_id}-{act.device}",
            session_id=act.session_id,
            occurred_at=act.at,
            trace_id=f"history-{self.flock.batch_id}-{self.plan.on}",
            payload=msgspec.Raw(msgspec.json.encode(act.payload)),
        )

    def _id(self, act: Act) -> UUID:
        """With its time in front; the same act always has the same id."""
        return ids.derived(
            act.at, self.life.tenant_id, self.flock.batch_id, act.device, act.kind, act.what
        )

    def _chance(self, *words: object) -> float:
        return flocks.share(self.life.seed, self.flock.barn_id, self.plan.age_days, *words)

    def _at(self, hour: float) -> datetime:
        """The moment of an hour of the local clock."""
        hours, minutes = divmod(round(hour * 60), 60)
        zone = ZoneInfo(self.life.timezone)
        return datetime.combine(self.plan.on, time(hours, minutes), zone).astimezone(UTC)

    # --- telemetry: readings of each hour

    def _readings(self) -> Iterator[Act]:
        outage = self._chance("outage") < OUTAGES
        zone = ZoneInfo(self.life.timezone)
        end = flocks.midnight(self.plan.on + timedelta(days=1), self.life.timezone)
        hour = flocks.midnight(self.plan.on, self.life.timezone)
        while hour < end:
            at = hour + _HOUR / 2
            local = at.astimezone(zone)
            if not (outage and local.hour in _OUTAGE_H):
                yield from self._readings_at(at, local.hour + local.minute / 60)
            hour += _HOUR

    def _readings_at(self, at: datetime, hour: float) -> Iterator[Act]:
        flock, age = self.flock, self.plan.age_days
        heat = flocks.heat_c(flock, age)
        warm, wake = _wave(hour, peak=15), _wave(hour, peak=13)
        noise = partial(self._noise, hour)
        values = (
            ("climate", "temperature", "°C",
             flocks.temperature_c(flock, age) + (1.5 + heat / 4) * warm + noise("t", 0.3), 1),
            ("climate", "humidity", "%", 62 - 7 * warm + noise("h", 1.5), 1),
            ("water", "water.flow", "l/min",
             self.plan.water_l / 1440 * (1 + 0.8 * wake) * (1 + noise("w", 0.05)), 3),
            ("climate", "co2", "ppm", flocks.co2_ppm(age) - 150 * warm + noise("c", 25), 0),
            ("silo", "silo.weight", "kg", self._silo_kg(at) + noise("s", 4), 1),
        )  # fmt: skip
        seldom = int(hour) % _SELDOM_H == 0
        for device, metric, unit, value, decimals in values if seldom else values[:_HOURLY]:
            sent = round(max(0.0, value), decimals)
            yield Act(
                at, telemetry.INGESTED, device,
                {"metric_type": metric, "metric_value": sent, "unit": unit}, what=metric,
                counts=("water_l", sent * 60) if metric == "water.flow" else ("", 0.0),
            )  # fmt: skip

    def _noise(self, hour: float, what: str, bound: float) -> float:
        return (self._chance(what, hour) * 2 - 1) * bound

    def _silo_kg(self, at: datetime) -> float:
        delivered = self.plan.delivered_kg if at >= self._at(_DELIVERY_H) else 0.0
        eaten = sum(share for hour, share in _FEEDINGS if self._at(hour) <= at)
        return self.plan.silo_kg + delivered - eaten * self.plan.feed_kg

    # --- feed

    def _feed(self) -> Iterator[Act]:
        if self.plan.delivered_kg:
            received = {"feed_lot_id": self.plan.lot, "quantity_kg": self.plan.delivered_kg}
            yield Act(self._at(_DELIVERY_H), feed.LOT_RECEIVED, "silo", received)
        left_kg = self.plan.feed_kg
        for hour, share in _FEEDINGS:
            last = hour == _FEEDINGS[-1][0]
            portion_kg = round(left_kg if last else self.plan.feed_kg * share, 1)
            left_kg -= portion_kg
            if portion_kg > 0:
                yield self._intake(hour, portion_kg)
        if self.flock.by_hand and self.plan.age_days == _WRONG_FEED_AGE:
            # A nought too many, seen soon.
            mistake = self._intake(9, _BY_HAND_KG * 10, by_hand=True, counts=False)
            yield mistake
            yield self._intake(9.5, _BY_HAND_KG, by_hand=True, replaces=self._id(mistake))

    def _intake(
        self,
        hour: float,
        quantity_kg: float,
        *,
        by_hand: bool = False,
        counts: bool = True,
        replaces: UUID | None = None,
    ) -> Act:
        payload: dict[str, Any] = {
            "source": "MANUAL" if by_hand else "SILO_AUTO",
            "quantity_kg": quantity_kg,
            "feed_lot_id": self.plan.lot,
            **({"replaces": str(replaces)} if replaces else {}),
        }
        by_machine = "feeder" if self.flock.has_feeder else "silo"
        return Act(
            self._at(hour), feed.INTAKE_RECORDED, "tablet" if by_hand else by_machine, payload,
            counts=("feed_kg", quantity_kg) if counts else ("", 0.0),
        )  # fmt: skip

    # --- what people write down

    def _records(self) -> Iterator[Act]:
        plan, flock = self.plan, self.flock
        if flock.by_hand and plan.age_days == _WRONG_DEATHS_AGE:
            mistake = self._record(_DEATHS_H - 0.25, "mortality", plan.dead + 10)
            yield mistake
            yield self._record(
                _DEATHS_H, "mortality", plan.dead, counts="dead",
                replaces=mistake.payload["record_id"],
            )  # fmt: skip
        else:
            yield self._record(_DEATHS_H, "mortality", plan.dead, counts="dead")
        if plan.culled:
            yield self._record(_CULLS_H, "cull", plan.culled, counts="culled")
        if flock.by_hand:
            litres = round(plan.water_l)
            yield self._record(_WATER_H, "water", litres, unit="l", counts="water_by_hand_l")
        for treatment in flock.treatments:
            if treatment.age_days == plan.age_days:
                yield self._treatment(treatment)
        if flock.recount and flock.recount[0] == plan.age_days:
            act = self._record(_COUNT_H, "head_count", plan.head_after)
            yield act._replace(counts=("uncounted", plan.uncounted))

    def _record(
        self,
        hour: float,
        record_type: str,
        value: float,
        *,
        unit: str = "animals",
        counts: str = "",
        **more: Any,
    ) -> Act:
        at = self._at(hour)
        payload = {
            "record_id": f"{self.flock.batch_id}-{record_type}-{at:%Y%m%d%H%M}",
            "record_type": record_type,
            "value": float(value),
            "unit": unit,
            "recorded_by_ref": "somebody",
            "recorded_at": at.isoformat(),
            **more,
        }
        return Act(
            at, barn.RECORD_CREATED, "tablet", payload, what=record_type, counts=(counts, value)
        )

    def _treatment(self, treatment: flocks.Treatment) -> Act:
        kind = "vaccination" if treatment.withdrawal_days is None else "treatment"
        days = treatment.withdrawal_days
        withdrawal: dict[str, Any] = {} if days is None else {"withdrawal_days": days}
        act = self._record(
            _TREATMENT_H, kind, self.plan.head,
            product=treatment.product, dose=treatment.dose, dose_unit=treatment.dose_unit,
            **withdrawal,
        )  # fmt: skip
        return act._replace(counts=("withdrawal", days or 0))

    # --- weighings

    def _weighings(self) -> Iterator[Act]:
        apart_h = (_LAST_WEIGHING_H - _FIRST_WEIGHING_H) / WEIGHINGS
        for number in range(WEIGHINGS):
            at = self._at(_FIRST_WEIGHING_H + apart_h * (number + 0.5))
            # A session is whole or not there.
            if at + timedelta(seconds=4) <= self.life.until:
                yield from self._weighing(number, at)

    def _weighing(self, number: int, at: datetime) -> Iterator[Act]:
        life, flock, expected = self.life, self.flock, self.expected
        weight_kg = flocks.bird_kg(life, flock, expected, at, self._chance("bird", number))
        counts = ("mean_kg", flocks.mean_kg(life, flock, expected, at))
        if self._chance("pair", number) < PAIRS:
            other_kg = flocks.bird_kg(life, flock, expected, at, self._chance("other", number))
            weight_kg, counts = round(weight_kg + other_kg, 3), ("", 0.0)
        session_id = ids.derived(at, life.tenant_id, flock.batch_id, "session", str(number))
        station = {weighvision.STATION: f"{flock.barn_id}-scale"}
        # The scale of the barn that is run by hand knows the batch; the others leave it to the edge
        # and the cloud.
        batch_id = flock.batch_id if flock.by_hand else None
        for seconds, kind, payload in (
            (0, weighvision.SESSION_CREATED,
             {"status": "created", "batch_id": batch_id, "initial_weight_kg": None}),
            (4, weighvision.SESSION_FINALIZED,
             {"status": "finalized", "final_weight_kg": weight_kg, "image_count": 0,
              "inference_result_id": None}),
        ):  # fmt: skip
            yield Act(
                at + timedelta(seconds=seconds), kind, "station", {**payload, **station},
                what=str(number), session_id=session_id,
                counts=counts if kind == weighvision.SESSION_FINALIZED else ("", 0.0),
            )  # fmt: skip


def _wave(hour: float, *, peak: float) -> float:
    """1 at the peak of the day, -1 half a day later."""
    return math.cos((hour - peak) / 24 * 2 * math.pi)
