"""Batches that never lived, and how well their growth is foreseen. `python -m` prints the table.

The true curve is not the forecast's: its shape varies around Gompertz's, the gain wanders from day
to day, and some batches have a week of poor growth. The scale sees a few animals on most days.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from farmiq.farm import growth
from farmiq.farm.growth import Curve, DailyMean, NotEnoughDataError

BATCHES = 50
# A line that hardly rises meets the target in years: what it is wrong by counts up to this.
MAX_LINE_ERROR_DAYS = 60


@dataclass(frozen=True)
class Kind:
    """Animals that grow alike. `unknown_age_days`: the batch was registered younger than it is."""

    name: str
    mature_kg: float
    rate: float
    birth_kg: float
    placed_age_days: int
    target_kg: float
    asked_at_ages: tuple[int, ...]
    days_ahead: tuple[int, ...]
    unknown_age_days: int = 0


PIGS = Kind("pig", 230, 0.0125, 1.4, 28, 115, (36, 42, 70, 100, 130), (7, 14, 28))
KINDS = (
    Kind("broiler", 7.5, 0.042, 0.042, 1, 2.5, (10, 14, 21, 28, 35), (7, 14)),
    Kind("duck", 4.0, 0.065, 0.054, 1, 3.2, (10, 14, 21, 28, 35), (7, 14)),
    PIGS,
    Kind("pig, age not registered", 230, 0.0125, 1.4, 28, 115, (42, 70, 100, 130), (7, 14, 28), 28),
)


@dataclass
class Cases:
    """Forecasts of one kind, made at one age: what was asked, answered, and how it turned out."""

    kind: str
    age_days: int | str
    asked: int = 0
    inside: list[bool] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    line_errors: list[float] = field(default_factory=list)

    @property
    def coverage(self) -> float:
        return _mean(self.inside)

    @property
    def error(self) -> float:
        return _mean(self.errors)

    @property
    def line_error(self) -> float:
        return _mean(self.line_errors)


def true_weights(dice: random.Random, kind: Kind, *, days: int = 400) -> list[float]:
    """The mean weight of a batch at each age in days."""
    mature = kind.mature_kg * math.exp(dice.gauss(0, 0.1))
    rate = kind.rate * math.exp(dice.gauss(0, 0.07))
    shape = dice.choice((0.0, 0.0, 0.15, -0.15))
    poor_from = dice.randint(kind.placed_age_days, kind.asked_at_ages[-1])
    poor_days, poor_share = dice.randint(3, 7), dice.uniform(0.4, 0.7)
    is_poor = dice.random() < 0.4
    weights, mood = [kind.birth_kg * math.exp(dice.gauss(0, 0.08))], 0.0
    for age in range(1, days + 1):
        mood = 0.9 * mood + dice.gauss(0, 0.04)
        share = weights[-1] / mature
        room = (1 - share**shape) / shape if shape else -math.log(share)
        gain = rate * weights[-1] * max(room, 0) * (1 + mood)
        if is_poor and poor_from <= age < poor_from + poor_days:
            gain *= poor_share
        weights.append(weights[-1] + gain)
    return weights


def weigh(dice: random.Random, kind: Kind, weights: Sequence[float]) -> list[DailyMean]:
    """What the scale saw until the last forecast: 4 to 30 animals a day, days without any."""
    spread, usual = dice.uniform(0.08, 0.14), dice.choice((4, 10, 30))
    missed = dice.uniform(0.05, 0.4)
    days = []
    for age in range(kind.placed_age_days, kind.asked_at_ages[-1] + 1):
        if dice.random() < missed:
            continue
        count = max(1, int(dice.gauss(usual, math.sqrt(usual))))
        # Who comes to the scale differs from day to day.
        mean = weights[age] * math.exp(dice.gauss(0, 0.015))
        seen = [mean * max(0.3, dice.gauss(1, spread)) for _ in range(count)]
        days.append(DailyMean(age - kind.unknown_age_days, _mean(seen), count, _deviation(seen)))
    return days


def line(days: Sequence[DailyMean]) -> Callable[[float], float] | None:
    """The straight line over the last 7 days, which a forecast has to beat."""
    recent = [day for day in days if day.age_days > days[-1].age_days - 7] if days else []
    if len(recent) < 2:
        return None
    middle, height = _mean([day.age_days for day in recent]), _mean([day.mean_kg for day in recent])
    slope = sum((day.age_days - middle) * day.mean_kg for day in recent) / sum(
        (day.age_days - middle) ** 2 for day in recent
    )
    return lambda age: height + slope * (age - middle)


def run(batches: int = BATCHES, *, seed: str = "back-test") -> tuple[list[Cases], list[Cases]]:
    """Forecasts of weights (errors in % of the weight) and of target days (errors in days)."""
    weights, arrivals = [], []
    for kind in KINDS:
        for age in kind.asked_at_ages:
            weight, arrival = Cases(kind.name, age), Cases(kind.name, age)
            for number in range(batches):
                dice = random.Random(f"{seed} {kind.name} {number}")
                truth = true_weights(dice, kind)
                last = age - kind.unknown_age_days
                seen = [day for day in weigh(dice, kind, truth) if day.age_days <= last]
                straight = line(seen)
                if straight is not None:
                    curve = _curve(seen)
                    _ask_weights(weight, kind, truth, curve=curve, straight=straight, age=age)
                    _ask_arrival(arrival, kind, truth, curve=curve, straight=straight, age=age)
            weights.append(weight)
            arrivals.append(arrival)
    return weights, arrivals


def total(cases: Sequence[Cases]) -> Cases:
    together = Cases("all", "")
    for case in cases:
        together.asked += case.asked
        together.inside += case.inside
        together.errors += case.errors
        together.line_errors += case.line_errors
    return together


def table(weights: Sequence[Cases], arrivals: Sequence[Cases]) -> Iterator[str]:
    """The back-test in Markdown."""
    yield (
        "| batches | age | weights: answered | in the band | error | line's error "
        "| target days: answered | in the band | error | line's error |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for weight, arrival in zip(
        [*weights, total(weights)], [*arrivals, total(arrivals)], strict=True
    ):
        cells = f"{_cells(weight, '%')} | {_cells(arrival, 'd')}"
        yield f"| {weight.kind} | {weight.age_days} | {cells} |"


def _cells(cases: Cases, unit: str) -> str:
    answered = f"{len(cases.errors)} of {cases.asked}"
    if not cases.errors:
        return f"{answered} | - | - | -"
    return (
        f"{answered} | {100 * cases.coverage:.0f} % | {cases.error:.1f} {unit} "
        f"| {cases.line_error:.1f} {unit}"
    )


def _curve(seen: Sequence[DailyMean]) -> Curve | None:
    try:
        return growth.fit(seen)
    except NotEnoughDataError:
        return None


def _ask_weights(
    cases: Cases,
    kind: Kind,
    truth: Sequence[float],
    *,
    curve: Curve | None,
    straight: Callable[[float], float],
    age: int,
) -> None:
    for ahead in kind.days_ahead:
        cases.asked += 1
        asked, true_kg = age + ahead - kind.unknown_age_days, truth[age + ahead]
        if curve is None:
            continue
        try:
            estimate = curve.at(asked)
        except NotEnoughDataError:
            continue
        cases.inside.append(estimate.low_kg <= true_kg <= estimate.high_kg)
        cases.errors.append(100 * abs(estimate.kg - true_kg) / true_kg)
        cases.line_errors.append(100 * abs(straight(asked) - true_kg) / true_kg)


def _ask_arrival(
    cases: Cases,
    kind: Kind,
    truth: Sequence[float],
    *,
    curve: Curve | None,
    straight: Callable[[float], float],
    age: int,
) -> None:
    arrived = next(day for day, weight in enumerate(truth) if weight >= kind.target_kg)
    if arrived <= age:
        return
    cases.asked += 1
    arrived -= kind.unknown_age_days
    if curve is None:
        return
    try:
        arrival = curve.reach(kind.target_kg)
    except NotEnoughDataError:
        return
    latest = math.inf if arrival.latest_age_days is None else arrival.latest_age_days
    ages = range(arrived - MAX_LINE_ERROR_DAYS, arrived + MAX_LINE_ERROR_DAYS)
    by_line = next((age for age in ages if straight(age) >= kind.target_kg), ages.stop)
    cases.inside.append(arrival.earliest_age_days <= arrived <= latest)
    cases.errors.append(abs(arrival.age_days - arrived))
    cases.line_errors.append(abs(by_line - arrived))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    middle = _mean(values)
    return math.sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1))


if __name__ == "__main__":
    print(*table(*run()), sep="\n")  # noqa: T201
