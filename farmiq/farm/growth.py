"""How a batch grows: a curve through its daily mean weights, and what it says about later days.

Pure. Where a week and a half of weighings is there and the age is known, the curve is Gompertz's,
ln w(t) = ln A - exp(b - k t), t being the age in days; before that it is a local trend: a line
through the logarithms of the last days' weights that flattens as animals of this age do.
What neither can say is NotEnoughDataError with the reason (D-390).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from farmiq.messages.kinds import MAX_WEIGHT_KG
from farmiq.messages.wording import worded

# Weighed days that a trend needs, and how far back it looks.
MIN_TREND_DAYS = 3
TREND_SPAN_DAYS = 10
MIN_TREND_AGE_DAYS = 7
# A curve needs so many weighed days over so long, and animals that have grown by this factor.
MIN_CURVE_DAYS = 8
MIN_CURVE_SPAN_DAYS = 10
MIN_CURVE_GROWTH = 1.2
# A trend is good for as many days ahead as it looks back, a curve for as many as the batch is old,
# at least and at most for these. A band that is wider than this share of the weight is no answer.
MIN_CURVE_AHEAD_DAYS, MAX_CURVE_AHEAD_DAYS = 28, 365
MAX_BAND_SHARE = 0.5
# Between animals, if nothing is known yet; and what differs from day to day for all animals that
# come to the scale.
USUAL_CV = 0.12
DAY_CV = 0.015
# Animals of a day differ by ten times their mean at most: what says more is no weighing. And none
# weighs more than any scale says, so that an absurd band is wide and no error.
MAX_CV = 10.0
MAX_LN_KG = math.log(MAX_WEIGHT_KG)
# What farm animals have in common: ln ln (mature weight / weight at birth), and the rate of
# maturing k times (mature weight in kg)^0.27 (D-390). Both with their spread; data outweigh them.
USUAL_BIRTH, BIRTH_SPREAD = 1.5, 0.25
USUAL_RATE, RATE_SPREAD, RATE_POWER = math.log(0.065), 0.4, 0.27
# No batch follows a curve for ever: the share of the gain still to come that is uncertain, and the
# spread of a day that lies as far back as the batch is old. Set by the back-test (D-390).
GAIN_SPREAD = {"gompertz": 0.10, "trend": 0.25}
AGE_SPREAD = 0.25
# Standard normal: 80 % lie within so many standard deviations.
Z80 = 1.2815515655446004
MAX_STEPS, MAX_DAMPING = 60, 1e9


class NotEnoughDataError(Exception):
    """The weighings do not allow a forecast; the text says why."""


@dataclass(frozen=True, slots=True)
class DailyMean:
    """The weighings of one day; sd_kg is None if there was only one."""

    age_days: int
    mean_kg: float
    count: int
    sd_kg: float | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with the band that contains the truth in 80 % of cases."""

    kg: float
    low_kg: float
    high_kg: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """The ages at which a weight is reached; None where it is not within reach of the forecast."""

    age_days: int
    earliest_age_days: int
    latest_age_days: int | None


Vector = Sequence[float]


@dataclass(frozen=True, slots=True)
class Curve:
    """A fitted curve: ln weight = value(age), with the covariance of its parameters."""

    method: Literal["gompertz", "trend"]
    parameters: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    freedom: int
    first_age_days: int
    last_age_days: int
    max_age_days: int

    def at(self, age_days: int) -> Estimate:
        """The mean weight at an age. Raises NotEnoughDataError beyond what the curve can say."""
        if age_days > self.max_age_days:
            ahead = self.max_age_days - self.last_age_days
            raise NotEnoughDataError(
                worded(
                    "the weighings allow a forecast of %(number)s days; this is "
                    "%(number2)s days after the last of them",
                    number=ahead,
                    number2=age_days - self.last_age_days,
                )
            )
        if age_days < self.first_age_days:
            raise NotEnoughDataError(worded("this is before the first weighing"))
        estimate = self._estimate(age_days)
        if estimate.high_kg - estimate.low_kg > MAX_BAND_SHARE * estimate.kg:
            raise NotEnoughDataError(
                worded(
                    "the weight at this age may be anything from %(number)s to %(number2)s kg",
                    number=f"{estimate.low_kg:.2f}",
                    number2=f"{estimate.high_kg:.2f}",
                )
            )
        return estimate

    def reach(self, target_kg: float) -> Arrival:
        """The first day on which the batch weighs so much, with its band.

        Raises NotEnoughDataError if that is further ahead than the curve can say.
        """
        estimates = {
            age: self._estimate(age) for age in range(self.first_age_days, self.max_age_days + 1)
        }
        reached = [age for age, estimate in estimates.items() if estimate.kg >= target_kg]
        if not reached:
            last = estimates[self.max_age_days]
            raise NotEnoughDataError(
                worded(
                    "%(number)s kg is not reached within the %(value)s days that the "
                    "weighings allow to forecast; then the animals weigh %(number2)s kg "
                    "(%(number3)s to %(number4)s)",
                    number=f"{target_kg:g}",
                    value=self.max_age_days - self.last_age_days,
                    number2=f"{last.kg:.2f}",
                    number3=f"{last.low_kg:.2f}",
                    number4=f"{last.high_kg:.2f}",
                )
            )
        self.at(reached[0])
        return Arrival(
            reached[0],
            min(age for age, estimate in estimates.items() if estimate.high_kg >= target_kg),
            min(
                (age for age, estimate in estimates.items() if estimate.low_kg >= target_kg),
                default=None,
            ),
        )

    def _estimate(self, age_days: int) -> Estimate:
        value, slope = _SHAPES[self.method](self.parameters, age_days)
        spread = math.sqrt(
            _quadratic(self.covariance, slope) + self._gain_variance(age_days, value)
        )
        width = quantile(self.freedom) * spread
        return Estimate(_kg(value), _kg(value - width), _kg(value + width))

    def _gain_variance(self, age_days: int, value: float) -> float:
        """Of what the batch gains after its last weighing, which no curve can know."""
        if age_days <= self.last_age_days:
            return 0.0
        last, _ = _SHAPES[self.method](self.parameters, self.last_age_days)
        gained = 1 - math.exp(-abs(value - last))
        return (GAIN_SPREAD[self.method] * gained) ** 2


def fit(days: Sequence[DailyMean], *, is_age_known: bool = True) -> Curve:
    """The curve through these days, in any order. Raises NotEnoughDataError with the reason.

    Where ages are but days since placing it is a trend: Gompertz's curve begins at birth.
    """
    weighed = sorted(
        (day for day in days if day.count > 0 and day.mean_kg > 0), key=lambda day: day.age_days
    )
    if not weighed:
        raise NotEnoughDataError(worded("there are no weighings yet"))
    if len(weighed) < MIN_TREND_DAYS:
        raise NotEnoughDataError(
            worded(
                "there are weighings of %(number)s days; %(number2)s are needed",
                number=len(weighed),
                number2=MIN_TREND_DAYS,
            )
        )
    span = weighed[-1].age_days - weighed[0].age_days
    growth = max(day.mean_kg for day in weighed) / weighed[0].mean_kg
    is_long = len(weighed) >= MIN_CURVE_DAYS and span >= MIN_CURVE_SPAN_DAYS
    if is_age_known and is_long and growth > MIN_CURVE_GROWTH:
        curve = _gompertz(weighed)
        if curve is not None:
            return curve
    return _trend(weighed)


def quantile(freedom: int) -> float:
    """Student's t below which 90 % lie, by its expansion around the normal distribution."""
    z = Z80
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def _gompertz(days: Sequence[DailyMean]) -> Curve | None:
    """Gompertz's curve by Gauss-Newton steps with damping; None if they do not settle."""
    last = days[-1]
    variances = _variances(days, cv=_cv(days))
    scale = 1.0
    parameters: list[float] = [
        math.log(max(day.mean_kg for day in days)) + math.log(2),
        USUAL_RATE - RATE_POWER * math.log(2 * last.mean_kg),
        USUAL_BIRTH,
    ]
    for _ in range(2):
        settled = _descend(days, [variance * scale for variance in variances], parameters)
        if settled is None:
            return None
        parameters, covariance = settled
        misfit = sum(
            (math.log(day.mean_kg) - _gompertz_at(parameters, day.age_days)[0]) ** 2 / variance
            for day, variance in zip(days, variances, strict=True)
        )
        scale = max(1.0, misfit / (len(days) - 2))
    return Curve(
        method="gompertz",
        parameters=tuple(parameters),
        covariance=tuple(tuple(row) for row in covariance),
        freedom=len(days) - 2,
        first_age_days=days[0].age_days,
        last_age_days=last.age_days,
        max_age_days=last.age_days
        + min(max(MIN_CURVE_AHEAD_DAYS, last.age_days), MAX_CURVE_AHEAD_DAYS),
    )


def _descend(
    days: Sequence[DailyMean], variances: Sequence[float], start: Sequence[float]
) -> tuple[list[float], list[list[float]]] | None:
    parameters, damping = list(start), 1e-2
    cost, normal, gradient = _linearize(days, variances, parameters)
    for _ in range(MAX_STEPS):
        damped = [
            [value * (1 + damping) if row == column else value for column, value in enumerate(line)]
            for row, line in enumerate(normal)
        ]
        step = _solve(damped, gradient)
        tried = [parameter + change for parameter, change in zip(parameters, step, strict=True)]
        tried_cost, tried_normal, tried_gradient = _linearize(days, variances, tried)
        if tried_cost > cost:
            damping *= 4
            if damping > MAX_DAMPING:
                return parameters, _inverse(normal)
            continue
        is_settled = cost - tried_cost < 1e-10 * (1 + cost)
        parameters, cost, normal, gradient = tried, tried_cost, tried_normal, tried_gradient
        damping /= 4
        if is_settled:
            return parameters, _inverse(normal)
    return None


def _linearize(
    days: Sequence[DailyMean], variances: Sequence[float], parameters: Sequence[float]
) -> tuple[float, list[list[float]], list[float]]:
    """Cost, normal matrix and descent of the misfit, with what farm animals have in common."""
    rows: list[tuple[float, Vector, float]] = [
        ((USUAL_BIRTH - parameters[2]), (0.0, 0.0, 1.0), BIRTH_SPREAD**2),
        (
            USUAL_RATE - parameters[1] - RATE_POWER * parameters[0],
            (RATE_POWER, 1.0, 0.0),
            RATE_SPREAD**2,
        ),
    ]
    for day, variance in zip(days, variances, strict=True):
        value, slope = _gompertz_at(parameters, day.age_days)
        rows.append((math.log(day.mean_kg) - value, slope, variance))
    return _normal_equations(rows)


def _normal_equations(
    rows: Sequence[tuple[float, Vector, float]],
) -> tuple[float, list[list[float]], list[float]]:
    """Of rows (residual, derivatives, variance): the cost, the normal matrix, the descent."""
    size = range(len(rows[0][1]))
    cost = sum(residual * residual / variance for residual, _, variance in rows)
    normal = [
        [sum(slope[i] * slope[j] / variance for _, slope, variance in rows) for j in size]
        for i in size
    ]
    descent = [
        sum(slope[i] * residual / variance for residual, slope, variance in rows) for i in size
    ]
    return cost, normal, descent


def _trend(days: Sequence[DailyMean]) -> Curve:
    """A line through ln weight over the last days, flattened as the growth of the young is."""
    last = days[-1]
    recent = [day for day in days if day.age_days > last.age_days - TREND_SPAN_DAYS]
    if len(recent) < MIN_TREND_DAYS:
        raise NotEnoughDataError(
            worded(
                "there are weighings of %(number)s of the last %(number2)s days; "
                "%(number3)s are needed",
                number=len(recent),
                number2=TREND_SPAN_DAYS,
                number3=MIN_TREND_DAYS,
            )
        )
    # Gompertz's relative growth declines at the rate k; for the young k is about 1 / (2 age).
    rate = 1 / (2 * max(last.age_days, MIN_TREND_AGE_DAYS))
    variances = _variances(recent, cv=_cv(recent))
    _, normal, descent = _normal_equations(
        [
            (math.log(day.mean_kg), _trend_at((0.0, 0.0, rate), day.age_days)[1], variance)
            for day, variance in zip(recent, variances, strict=True)
        ]
    )
    height, slope = _solve(normal, descent)
    parameters = (height, slope, rate)
    misfit = sum(
        (math.log(day.mean_kg) - _trend_at(parameters, day.age_days)[0]) ** 2 / variance
        for day, variance in zip(recent, variances, strict=True)
    )
    freedom = len(recent) - 2
    scale = max(1.0, misfit / freedom)
    return Curve(
        method="trend",
        parameters=parameters,
        covariance=tuple(tuple(value * scale for value in row) for row in _inverse(normal)),
        freedom=freedom,
        first_age_days=recent[0].age_days,
        last_age_days=last.age_days,
        max_age_days=last.age_days + TREND_SPAN_DAYS,
    )


def _gompertz_at(parameters: Vector, age_days: int) -> tuple[float, Vector]:
    """The ln of the weight and its derivatives by ln A, ln k and b."""
    rate = math.exp(min(parameters[1], 2.0))
    rest = math.exp(min(parameters[2] - rate * age_days, 20.0))
    return parameters[0] - rest, (1.0, rate * age_days * rest, -rest)


def _trend_at(parameters: Vector, age_days: int) -> tuple[float, Vector]:
    """The ln of the weight and its derivatives by height and slope; the rate is given."""
    height, slope, rate = parameters
    rest = -math.exp(-rate * age_days)
    return height + slope * rest, (1.0, rest)


_SHAPES: dict[str, Callable[[Vector, int], tuple[float, Vector]]] = {
    "gompertz": _gompertz_at,
    "trend": _trend_at,
}


def _kg(ln_kg: float) -> float:
    return math.exp(min(ln_kg, MAX_LN_KG))


def _cv(days: Sequence[DailyMean]) -> float:
    """How much animals differ, over all days; as if one day of ten had been the usual."""
    squares, freedom = 9 * USUAL_CV**2, 9
    for day in days:
        if day.sd_kg is not None and day.count > 1:
            squares += (day.count - 1) * min(day.sd_kg / day.mean_kg, MAX_CV) ** 2
            freedom += day.count - 1
    return math.sqrt(squares / freedom)


def _variances(days: Sequence[DailyMean], *, cv: float) -> list[float]:
    """Of ln mean: few animals, the day, and how old it is."""
    last = days[-1].age_days
    return [
        cv**2 / day.count + DAY_CV**2 + (AGE_SPREAD * (last - day.age_days) / max(last, 1)) ** 2
        for day in days
    ]


def _quadratic(matrix: Sequence[Vector], vector: Vector) -> float:
    return sum(
        left * value * right
        for left, row in zip(vector, matrix, strict=True)
        for value, right in zip(row, vector, strict=True)
    )


def _solve(matrix: Sequence[Vector], right: Vector) -> list[float]:
    """Gaussian elimination with pivots; the matrices here are 2 or 3 wide and positive."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for row in range(size):
            if row != column:
                factor = rows[row][column] / rows[column][column]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column], strict=True)]
    return [row[-1] / row[index] for index, row in enumerate(rows)]


def _inverse(matrix: Sequence[Vector]) -> list[list[float]]:
    size = range(len(matrix))
    columns = [_solve(matrix, [float(row == column) for row in size]) for column in size]
    return [[columns[column][row] for column in size] for row in size]
