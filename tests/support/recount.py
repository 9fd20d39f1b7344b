"""Daily figures of batches, counted again from what was sent: slowly, from the definitions alone.

Plain Python over events and master data as they are on the wire. Imports nothing of the product, so
that a mistake there is none here. `docs/integrate/figures.md` has the definitions in words.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

Row = Mapping[str, Any]
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
LITRES = {None: 1.0, "l": 1.0, "L": 1.0, "m3": 1000.0}
HOT = {"pig": 74.0} | dict.fromkeys(("broiler", "layer", "duck", "turkey", "chicken"), 78.0)
# Animals of their first day bear so much more, which passes until this age.
YOUNG = {"pig": (6.0, 70)} | dict.fromkeys(HOT.keys() - {"pig"}, (8.0, 28))
TAKEN_AS_IS = {
    "temperature": ("°C", "C"), "humidity": ("%",), "water.flow": ("l/min", "L/min"),
}  # fmt: skip
EXPECTED = {
    "weight_mean": "weight_kg",
    "adg_7d": "daily_gain_g",
    "fcr": "feed_conversion",
    "mortality_pct": "mortality_pct",
}


class TieError(Exception):
    """A value lies so close to a limit that rounding decides on which side."""


class Figure(NamedTuple):
    value: float
    unit: str
    source_event_count: int
    expected_value: float | None
    difference: float | None


@dataclass(frozen=True)
class MasterData:
    """Rows as they are registered: farms, batches, breed standards, metrics."""

    farms: Sequence[Row]
    batches: Sequence[Row]
    standards: Sequence[Row] = ()
    metrics: Sequence[Row] = ()


@dataclass
class Facts:
    """What happened to one batch on one local date."""

    weights: list[float] = field(default_factory=list)
    # Weight on the scale, and what vision estimated.
    estimates: list[tuple[float, float]] = field(default_factory=list)
    intakes: list[float] = field(default_factory=list)
    water: list[float] = field(default_factory=list)
    dead: list[float] = field(default_factory=list)
    culled: list[float] = field(default_factory=list)
    heads: list[tuple[datetime, str, float]] = field(default_factory=list)
    # Hour -> metric -> device -> values, in the metric's own unit or left out.
    hours: dict[datetime, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    readings: int = 0
    # Hour, metric and device with a reading that cannot be right.
    spoilt: set[tuple[datetime, str, str]] = field(default_factory=set)

    def of_devices(self, metric: str) -> dict[datetime, list[list[float]]]:
        """Of each hour the values that count, of each device."""
        return {
            hour: [
                values
                for device, values in metrics.get(metric, {}).items()
                if (hour, metric, device) not in self.spoilt
            ]
            for hour, metrics in self.hours.items()
        }


def recount(events: Iterable[Row], master: MasterData) -> dict[tuple[str, str, date, str], Figure]:
    """Every figure of every batch, by tenant, batch, date and type. Raises TieError."""
    once = {(event["tenant_id"], event["event_id"]): event for event in events}
    figures = {}
    for batch in master.batches:
        for (on, kind), figure in _Batch(batch, list(once.values()), master).figures().items():
            figures[batch["tenant_id"], batch["batch_id"], on, kind] = figure
    return figures


def local_date(at: datetime, zone: str) -> date:
    return at.astimezone(ZoneInfo(zone)).date()


def hours_of_day(on: date, zone: str) -> list[datetime]:
    """The hours of UTC that begin on this local date."""
    noon = datetime(on.year, on.month, on.day, 12, tzinfo=UTC)
    around = (noon + HOUR * number for number in range(-48, 49))
    return [hour for hour in around if local_date(hour, zone) == on]


def counted(events: Sequence[Row], family: str) -> list[Row]:
    """The events of a family that no other event of the company replaces."""
    own = [event for event in events if event["event_type"].split(".")[0] == family]
    replaced = {
        (event["tenant_id"], str(event["payload"]["replaces"]))
        for event in own
        if event["payload"].get("replaces")
    }
    return [event for event in own if (event["tenant_id"], _name(event)) not in replaced]


def _name(event: Row) -> str:
    """By what a correction names the event: records have ids of their own."""
    return str(event["payload"].get("record_id", event["event_id"]))


def sessions(events: Sequence[Row]) -> list[Row]:
    """Weigh sessions that are finalized with a weight and by a clock that can be right."""
    by_session: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for event in events:
        if event["event_type"].startswith("weighvision.") and event["session_id"]:
            by_session[event["tenant_id"], str(event["session_id"])].append(event)
    weighings: list[Row] = []
    for own in by_session.values():
        own.sort(key=lambda event: (event["occurred_at"], str(event["event_id"])))
        created = _of_type(own, "weighvision.session.created")
        finalized = _of_type(own, "weighvision.session.finalized")
        if not finalized or any(event.get("clock_suspect") for event in own):
            continue
        recorded = _of_type(own, "weighvision.weight.recorded")
        weight = finalized[0]["payload"]["final_weight_kg"]
        if recorded and (weight is None or finalized[0]["payload"].get("weight_derived")):
            weight = recorded[-1]["payload"]["weight_kg"]
        if weight is None:
            continue
        first = created[0] if created else own[0]
        weighings.append(
            {
                **{name: own[0][name] for name in ("tenant_id", "farm_id", "barn_id")},
                "occurred_at": first["occurred_at"],
                "payload": created[0]["payload"] if created else {},
                "weight_kg": weight,
                "estimate_kg": _estimate(events, own[0]),
            }
        )
    return weighings


def _estimate(events: Sequence[Row], session: Row) -> float | None:
    """The last weight that vision estimated of a session."""
    made = [
        event
        for event in _of_type(events, "inference.completed")
        if all(event[name] == session[name] for name in ("tenant_id", "session_id"))
        and event["payload"]["predicted_weight_kg"] is not None
        and not event.get("clock_suspect")
    ]
    if not made:
        return None
    last = max(made, key=lambda event: (event["occurred_at"], str(event["event_id"])))
    return float(last["payload"]["predicted_weight_kg"])


def _of_type(events: Sequence[Row], event_type: str) -> list[Row]:
    return [event for event in events if event["event_type"] == event_type]


def usable(weights: Sequence[float]) -> list[float]:
    """The weights that are no outliers."""
    if len(weights) < 5:
        return sorted(weights)
    middle = percentile(weights, 0.5)
    spread = percentile([abs(weight - middle) for weight in weights], 0.5)
    limit = 3.5 * max(1.4826 * spread, 0.02 * middle)
    return sorted(weight for weight in weights if not above(abs(weight - middle), limit))


def percentile(values: Sequence[float], share: float) -> float:
    """Between two values on a straight line, as PostgreSQL's percentile_cont."""
    in_order = sorted(values)
    place = share * (len(in_order) - 1)
    low = math.floor(place)
    high = min(low + 1, len(in_order) - 1)
    return in_order[low] + (place - low) * (in_order[high] - in_order[low])


def above(value: float, limit: float) -> bool:
    """Raises TieError if rounding would decide."""
    if abs(value - limit) <= 1e-9 * max(abs(value), abs(limit)) and value != 0:
        raise TieError(f"{value} is {limit} but for rounding")
    return value > limit


def thi(temperature: float, humidity: float) -> float:
    return 0.8 * temperature + humidity / 100 * (temperature - 14.4) + 46.4


def between_ages(standard: Sequence[Row], column: str, age: int | None) -> float | None:
    """The standard at an age, linear between its ages; None outside them, or of unknown age."""
    if age is None:
        return None
    known = {row["age_days"]: row[column] for row in standard if row.get(column) is not None}
    if age in known:
        return float(known[age])
    younger = [known_age for known_age in known if known_age < age]
    older = [known_age for known_age in known if known_age > age]
    if not younger or not older:
        return None
    low, high = max(younger), min(older)
    share = (age - low) / (high - low)
    return float(known[low] * (1 - share) + known[high] * share)


class _Batch:
    """One batch: its facts by date, then each figure from its definition."""

    def __init__(self, batch: Row, events: Sequence[Row], master: MasterData) -> None:
        self.batch, self.master = batch, master
        self.zone = next(
            farm["timezone"]
            for farm in master.farms
            if (farm["tenant_id"], farm["farm_id"]) == (batch["tenant_id"], batch["farm_id"])
        )
        self.standard = self._standard()
        self.days: dict[date, Facts] = {}
        for weighing in sessions(events):
            if facts := self._day_of(weighing):
                facts.weights.append(weighing["weight_kg"])
                if weighing["estimate_kg"] is not None:
                    facts.estimates.append((weighing["weight_kg"], weighing["estimate_kg"]))
        for event in counted(events, "feed"):
            is_intake = event["event_type"] == "feed.intake.recorded"
            if is_intake and not event.get("clock_suspect") and (facts := self._day_of(event)):
                facts.intakes.append(event["payload"]["quantity_kg"])
        for event in counted(events, "barn"):
            if not event.get("clock_suspect"):
                self._add_record(event)
        for event in _of_type(events, "telemetry.ingested"):
            if not event.get("clock_suspect"):
                self._add_reading(event)

    def _standard(self) -> list[Row]:
        rows = [
            row
            for row in self.master.standards
            if row["tenant_id"] == self.batch["tenant_id"]
            if row["species"].lower() == self.batch["species"].lower()
            if row["breed"].lower() == (self.batch["breed"] or "").lower()
        ]
        own = [row for row in rows if row["sex"] == self.batch["sex"]]
        return own or [row for row in rows if row["sex"] == "mixed"]

    def _day_of(self, event: Row) -> Facts | None:
        """The day of this batch to which the event belongs, if it does."""
        if event["tenant_id"] != self.batch["tenant_id"]:
            return None
        on = local_date(event["occurred_at"], self.zone)
        named = event["payload"].get("batch_id")
        if event["payload"].get("batch_derived") is True and not self._holds(named, event):
            named = None
        is_ours = named == self.batch["batch_id"] if named else self._is_in_its_barn(event)
        return self.days.setdefault(on, Facts()) if is_ours and self._is_there(on) else None

    def _holds(self, named: str, event: Row) -> bool:
        """Whether a batch that was derived, not named, is there on the day of the event."""
        return any(
            batch["placed_on"] <= on and (batch["closed_on"] is None or on <= batch["closed_on"])
            for batch in self.master.batches
            if (batch["tenant_id"], batch["batch_id"]) == (event["tenant_id"], named)
            for farm in self.master.farms
            if (farm["tenant_id"], farm["farm_id"]) == (batch["tenant_id"], batch["farm_id"])
            for on in [local_date(event["occurred_at"], farm["timezone"])]
        )

    def _is_in_its_barn(self, event: Row) -> bool:
        return all(event[name] == self.batch[name] for name in ("farm_id", "barn_id"))

    def _is_there(self, on: date) -> bool:
        closed = self.batch["closed_on"]
        return self.batch["placed_on"] <= on and (closed is None or on <= closed)

    def age(self, on: date) -> int | None:
        known: int | None = self.batch["age_at_placing_days"]
        return None if known is None else known + (on - self.batch["placed_on"]).days

    def _add_record(self, event: Row) -> None:
        record = event["payload"]
        kind, value = record["record_type"], record["value"]
        if kind not in {"water", "mortality", "cull", "head_count"}:
            return
        if kind == "water" and record.get("unit") not in LITRES:
            return
        facts = self._day_of(event)
        if facts is None:
            return
        if kind == "water":
            facts.water.append(value * LITRES[record.get("unit")])
        elif kind == "head_count":
            facts.heads.append((event["occurred_at"], record["record_id"], value))
        else:
            (facts.dead if kind == "mortality" else facts.culled).append(value)

    def _add_reading(self, event: Row) -> None:
        """A reading belongs to the day on which its hour of UTC begins."""
        hour = event["occurred_at"].replace(minute=0, second=0, microsecond=0)
        on = local_date(hour, self.zone)
        is_ours = event["tenant_id"] == self.batch["tenant_id"] and self._is_in_its_barn(event)
        if not is_ours or not self._is_there(on):
            return
        facts = self.days.setdefault(on, Facts())
        facts.readings += 1
        metrics = facts.hours.setdefault(hour, {})
        reading = event["payload"]
        value = self._in_its_unit(reading["metric_type"], reading["metric_value"], reading["unit"])
        if value is not None:
            devices = metrics.setdefault(reading["metric_type"], {})
            devices.setdefault(event["device_id"], []).append(value)
            if not self._is_plausible(reading["metric_type"], value):
                facts.spoilt.add((hour, reading["metric_type"], event["device_id"]))

    def _in_its_unit(self, metric: str, value: float, unit: str) -> float | None:
        wanted = TAKEN_AS_IS.get(metric, ())
        if unit in wanted:
            return value
        for row in self.master.metrics:
            is_known = (row["tenant_id"], row["metric_type"]) == (self.batch["tenant_id"], metric)
            if is_known and row["unit"] in wanted and unit in row["conversions"]:
                factor, offset = row["conversions"][unit]
                return float(value * factor + offset)
        return None

    def _is_plausible(self, metric: str, value: float) -> bool:
        for row in self.master.metrics:
            is_known = (row["tenant_id"], row["metric_type"]) == (self.batch["tenant_id"], metric)
            if is_known and row["unit"] in TAKEN_AS_IS.get(metric, ()):
                low, high = row.get("min_plausible"), row.get("max_plausible")
                return (low is None or value >= low) and (high is None or value <= high)
        return True

    # What the facts come to.

    def mean(self, on: date) -> float | None:
        weights = self.weights(on)
        return math.fsum(weights) / len(weights) if weights else None

    def weights(self, on: date) -> list[float]:
        return usable(self.days[on].weights) if on in self.days else []

    def head(self, on: date) -> float:
        """Animals at the end of a date: the last count, less those who died or left since."""
        counts = [day for day in self.days if day <= on and self.days[day].heads]
        start: float = self.batch["placed_count"]
        since = date.min
        if counts:
            since = max(counts)
            start = max(self.days[since].heads)[2]
        gone = (
            sum(facts.dead) + sum(facts.culled)
            for day, facts in self.days.items()
            if since < day <= on
        )
        return max(0.0, start - math.fsum(gone))

    def water(self, on: date) -> tuple[float | None, int]:
        facts = self.days[on]
        if facts.water:
            return math.fsum(facts.water), len(facts.water)
        series = [
            values for devices in facts.of_devices("water.flow").values() for values in devices
        ]
        if not series:
            return None, 0
        litres = math.fsum(60 * math.fsum(values) / len(values) for values in series)
        return litres, sum(map(len, series))

    def hot_hours(self, on: date) -> tuple[int | None, int]:
        """Hours whose index reaches the limit, of those with both metrics; and their readings."""
        hot, hours, readings = 0, 0, 0
        species = self.batch["species"].lower()
        age, (more, until) = self.age(on), YOUNG.get(species, (0.0, 1))
        limit = HOT.get(species, 72.0)
        if age is not None and age < until:
            limit += more * (until - age) / until
        facts = self.days[on]
        warm, damp = (facts.of_devices(name) for name in ("temperature", "humidity"))
        for hour in facts.hours:
            both = [[value for values in of[hour] for value in values] for of in (warm, damp)]
            if all(both):
                hours += 1
                readings += sum(map(len, both))
                # The mean of the devices' means, weighted by their counts, is that of all readings.
                means = [math.fsum(values) / len(values) for values in both]
                hot += not above(limit, thi(*means))
        return (hot, readings) if hours else (None, 0)

    def figures(self) -> dict[tuple[date, str], Figure]:
        figures = {}
        for on in self.days:
            for kind, value, unit, count in self._of_day(on):
                age = self.age(on)
                column = EXPECTED.get(kind)
                expected = between_ages(self.standard, column, age) if column else None
                difference = None if expected is None else value - expected
                figures[on, kind] = Figure(value, unit, count, expected, difference)
        return figures

    def _of_day(self, on: date) -> list[tuple[str, float, str, int]]:
        return [
            *self._heads(on), *self._weights(on), *self._gains(on), *self._conversion(on),
            *self._consumption(on), *self._climate(on),
        ]  # fmt: skip

    def _heads(self, on: date) -> list[tuple[str, float, str, int]]:
        until = [facts for day, facts in self.days.items() if day <= on]
        facts, placed = self.days[on], self.batch["placed_count"]
        records = sum(len(f.dead) + len(f.culled) + len(f.heads) for f in until)
        rows = [("head_count", self.head(on), "head", records)]
        if start := self.head(on - DAY):
            rows.append(("mortality_day_pct", 100 * sum(facts.dead) / start, "%", len(facts.dead)))
        dead = math.fsum(sum(f.dead) for f in until)
        rows.append(("mortality_pct", 100 * dead / placed, "%", sum(len(f.dead) for f in until)))
        return rows

    def _weights(self, on: date) -> list[tuple[str, float, str, int]]:
        weights = self.weights(on)
        count, mean = len(weights), self.mean(on)
        if mean is None:
            return []
        rows = [
            ("weight_mean", mean, "kg", count),
            ("weight_median", percentile(weights, 0.5), "kg", count),
            ("weight_p10", percentile(weights, 0.1), "kg", count),
            ("weight_p90", percentile(weights, 0.9), "kg", count),
        ]
        if count > 1:
            squares = math.fsum((weight - mean) ** 2 for weight in weights)
            near = sum(not above(abs(weight - mean), 0.1 * mean) for weight in weights)
            deviation = math.sqrt(squares / (count - 1))
            rows.append(("weight_cv", 100 * deviation / mean, "%", count))
            rows.append(("weight_uniformity", 100 * near / count, "%", count))
        # Weights that are equal are outliers together, or none of them is.
        off = [
            100 * (estimate - weight) / weight
            for weight, estimate in self.days[on].estimates
            if weight in weights
        ]
        if off:
            rows.append(("vision_residual", math.fsum(off) / len(off), "%", len(off)))
        return rows

    def _origin(self) -> tuple[date, float, float, date, int] | None:
        """From where growth counts: date, weight, heads, first day of feed, weighings."""
        batch = self.batch
        weight = between_ages(self.standard, "weight_kg", batch["age_at_placing_days"])
        if weight is not None:
            return batch["placed_on"], weight, batch["placed_count"], batch["placed_on"], 0
        weighed = [day for day in self.days if self.weights(day)]
        if not weighed:
            return None
        first = min(weighed)
        mean = self.mean(first)
        assert mean is not None
        return first, mean, self.head(first), first + DAY, len(self.weights(first))

    def _gains(self, on: date) -> list[tuple[str, float, str, int]]:
        mean, count, origin = self.mean(on), len(self.weights(on)), self._origin()
        if mean is None or origin is None:
            return []
        rows = []
        if on > origin[0]:
            days = (on - origin[0]).days
            rows.append(("adg", 1000 * (mean - origin[1]) / days, "g/d", count + origin[4]))
        for kind, first, last in (("adg_7d", 10, 7), ("adg_30d", 35, 30)):
            earlier = [
                day for day in self.days if first >= (on - day).days >= last and self.weights(day)
            ]
            if earlier:
                day = max(earlier)
                before = self.mean(day)
                assert before is not None
                gain = 1000 * (mean - before) / (on - day).days
                rows.append((kind, gain, "g/d", count + len(self.weights(day))))
        return rows

    def _conversion(self, on: date) -> list[tuple[str, float, str, int]]:
        mean, origin = self.mean(on), self._origin()
        if mean is None or origin is None:
            return []
        _, weight, heads, first_feed, weighings = origin
        intakes = [
            intake
            for day, facts in self.days.items()
            if first_feed <= day <= on
            for intake in facts.intakes
        ]
        gained = mean * self.head(on) - weight * heads
        if abs(gained) <= 1e-9 * weight * heads and gained != 0:
            raise TieError("the batch gained nothing but for rounding")
        if gained <= 0 or math.fsum(intakes) <= 0:
            return []
        fcr = math.fsum(intakes) / gained
        count = len(intakes) + len(self.weights(on)) + weighings
        rows = [("fcr", fcr, "kg/kg", count)]
        age = self.age(on)
        if self.batch["species"].lower() == "broiler" and age is not None and age > 0:
            alive = 100 * self.head(on) / self.batch["placed_count"]
            rows.append(("epef", alive * mean / (age * fcr) * 100, "1", count))
        return rows

    def _consumption(self, on: date) -> list[tuple[str, float, str, int]]:
        facts, start = self.days[on], self.head(on - DAY)
        feed, intakes = math.fsum(facts.intakes), len(facts.intakes)
        water, drinks = self.water(on)
        rows = []
        if intakes:
            rows.append(("intake_kg", feed, "kg", intakes))
            if start:
                rows.append(("intake_per_head", 1000 * feed / start, "g/head", intakes))
        if water is not None:
            if start:
                rows.append(("water_per_head", water / start, "l/head", drinks))
            if intakes and feed > 0:
                rows.append(("water_to_feed", water / feed, "l/kg", drinks + intakes))
        return rows

    def _climate(self, on: date) -> list[tuple[str, float, str, int]]:
        facts = self.days[on]
        if not facts.hours:
            return []
        hot, readings = self.hot_hours(on)
        share = 100 * len(facts.hours) / len(hours_of_day(on, self.zone))
        rows: list[tuple[str, float, str, int]] = [("data_coverage", share, "%", facts.readings)]
        if hot is not None:
            rows.append(("thi_hours", hot, "h", readings))
        return rows
