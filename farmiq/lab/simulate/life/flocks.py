"""Pure: flocks of broilers and what truly happens to them, day by day.

The breed's standard says how such animals grow, eat and die; a flock differs from it as its barn
does. Chance comes from the seed alone: the same farm lives the same life again, whenever it begins.
"""

import hashlib
import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from statistics import NormalDist
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

DAYS = 35
# Barns with one; those beyond are empty.
FLOCKS = 4
SILO_KG = 6000.0
# The lorry comes by night, when less than this many days' feed is left.
_RESERVE_DAYS = 2.0
_ROUNDED_KG = -2
_WATER_PER_FEED = 1.8
_HOT_WATER_PER_DEGREE = 0.07
# No bird is further from the mean than this many standard deviations.
_FURTHEST = 2.6
_MIDDLE = NormalDist()


class Treatment(msgspec.Struct, frozen=True, kw_only=True):
    """Given to the whole flock at an age; a vaccination has no withdrawal days."""

    age_days: int
    product: str
    dose: float
    dose_unit: str
    withdrawal_days: int | None = None


class Flock(msgspec.Struct, frozen=True, kw_only=True):
    """A batch and how its barn differs from the standard.

    `growth` is its share of the standard's weight in the end; the difference begins at
    `differs_from_age`. `heat_c` is how much too warm the barn is from `hot_from_age` on.
    `by_hand`: somebody reads the water meter and writes things down, not without mistakes.
    `recount` is (age, birds fewer than expected) of the day on which they were counted.
    """

    batch_id: str
    barn_id: str
    placed_on: date
    placed_count: int
    growth: float = 1.0
    appetite: float = 1.0
    spread: float = 0.085
    deaths: float = 1.0
    differs_from_age: int = 8
    heat_c: float = 0.0
    hot_from_age: int = 14
    has_feeder: bool = False
    by_hand: bool = False
    treatments: tuple[Treatment, ...] = ()
    recount: tuple[int, int] | None = None


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """A farm of flocks; its history ends at `until`, from where the live farm goes on."""

    tenant_id: str
    farm_id: str
    timezone: str
    seed: int
    until: datetime
    flocks: tuple[Flock, ...]

    @property
    def today(self) -> date:
        return self.until.astimezone(ZoneInfo(self.timezone)).date()


VACCINES = (
    Treatment(age_days=7, product="ND + IB vaccine", dose=1.0, dose_unit="dose/head"),
    Treatment(age_days=14, product="IBD vaccine", dose=1.0, dose_unit="dose/head"),
)
# Treated a few days ago: it must not be sold yet.
ANTIBIOTIC = Treatment(
    age_days=DAYS - 3, product="Doxycycline", dose=20.0, dose_unit="mg/kg", withdrawal_days=7
)
VITAMIN = Treatment(age_days=22, product="Vitamin C", dose=1.0, dose_unit="g/l", withdrawal_days=0)


def broiler_farm(
    tenant_id: str,
    *,
    until: datetime,
    timezone: str,
    barns: int = 4,
    seed: int = 1,
    farm_id: str = "hill-farm",
) -> Life:
    """A farm whose barns differ: as the standard says, behind it, too hot, and younger by hand.

    Every other barn has a feeder, as `farm.farm` builds them.
    """
    today = until.astimezone(ZoneInfo(timezone)).date()

    def flock(number: int, *, days: int = DAYS, **how: Any) -> Flock:
        placed_on, barn_id = today - timedelta(days=days), f"barn-{number}"
        return Flock(
            batch_id=f"{barn_id}-{placed_on:%Y%m%d}", barn_id=barn_id, placed_on=placed_on,
            has_feeder=bool(number % 2), **how,
        )  # fmt: skip

    flocks = (
        flock(1, placed_count=5200, treatments=VACCINES),
        flock(
            2, placed_count=5000, growth=0.84, appetite=0.94, spread=0.13, deaths=1.5,
            treatments=(*VACCINES, ANTIBIOTIC),
        ),
        flock(
            3, placed_count=4800, growth=0.94, appetite=0.97, spread=0.1, differs_from_age=18,
            heat_c=7.0, hot_from_age=18, treatments=(*VACCINES, VITAMIN),
        ),
        flock(
            4, days=21, placed_count=5000, growth=1.03, by_hand=True, treatments=VACCINES,
            recount=(12, 9),
        ),
    )  # fmt: skip
    return Life(
        tenant_id=tenant_id, farm_id=farm_id, timezone=timezone, seed=seed, until=until,
        flocks=flocks[:barns],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Standard:
    """What a breed is expected to be, by age; between two ages the line between them.

    `feed_kg` is what a bird has eaten by then.
    """

    ages: tuple[int, ...]
    weights_kg: tuple[float, ...]
    feed_kg: tuple[float, ...]
    mortality_pct: tuple[float, ...]

    def weight_kg(self, age: float) -> float:
        return self._at(self.weights_kg, age)

    def eaten_kg(self, day: int) -> float:
        """What a bird eats on the date on which it is so many days old."""
        return self._on(self.feed_kg, day)

    def dying(self, day: int) -> float:
        """Share of the placed birds that die on the date on which they are so many days old."""
        return self._on(self.mortality_pct, day) / 100

    def _on(self, values: tuple[float, ...], day: int) -> float:
        """From half a day before the age, which is that at noon, to half a day after."""
        return self._at(values, day + 0.5) - self._at(values, max(0.0, day - 0.5))

    def _at(self, values: tuple[float, ...], age: float) -> float:
        """Beyond its last age the standard goes on as in its last days."""
        right = min(max(1, bisect_right(self.ages, age)), len(self.ages) - 1)
        begin, end = self.ages[right - 1], self.ages[right]
        share = (age - begin) / (end - begin)
        return values[right - 1] + share * (values[right] - values[right - 1])


@dataclass(frozen=True, slots=True)
class Plan:
    """What a whole day of a flock has in store; `silo_kg` is at midnight, before a delivery."""

    on: date
    age_days: int
    head: int
    dead: int
    culled: int
    uncounted: int
    feed_kg: float
    water_l: float
    silo_kg: float
    delivered_kg: float
    lot: str

    @property
    def head_after(self) -> int:
        return self.head - self.dead - self.culled - self.uncounted


def plans(life: Life, flock: Flock, expected: Standard) -> Iterator[Plan]:
    """Every day from the placing on, without end."""
    head, silo_kg, lot = flock.placed_count, 0.0, ""
    for day in itertools.count():
        plan = _plan(life, flock, expected, day=day, head=head, silo_kg=silo_kg, lot=lot)
        yield plan
        head, lot = plan.head_after, plan.lot
        silo_kg = silo_kg + plan.delivered_kg - plan.feed_kg


def _plan(
    life: Life, flock: Flock, expected: Standard, *, day: int, head: int, silo_kg: float, lot: str
) -> Plan:
    def chance(what: str) -> float:
        return share(life.seed, flock.barn_id, what, day)

    hot = heat_c(flock, day) > 0
    dying = expected.dying(day) * flock.placed_count * flock.deaths * (2.0 if hot else 1.0)
    dead = min(head, _whole(dying * (0.5 + chance("deaths")), chance("dead")))
    culled = min(head - dead, _whole(dying / 5, chance("culled")))
    recount_age, fewer = flock.recount or (None, 0)
    uncounted = min(head - dead - culled, fewer) if day == recount_age else 0
    bird_kg = expected.eaten_kg(day) * (flock.appetite if day >= flock.differs_from_age else 1.0)
    feed_kg = round(head * bird_kg * (0.97 + 0.06 * chance("feed")), 1)
    warmth = 1 + _HOT_WATER_PER_DEGREE * heat_c(flock, day)
    short = silo_kg < _RESERVE_DAYS * feed_kg or day == 0
    on = flock.placed_on + timedelta(days=day)
    return Plan(
        on=on,
        age_days=day,
        head=head,
        dead=dead,
        culled=culled,
        uncounted=uncounted,
        feed_kg=feed_kg,
        water_l=feed_kg * _WATER_PER_FEED * warmth,
        silo_kg=silo_kg,
        delivered_kg=round(SILO_KG - silo_kg, _ROUNDED_KG) if short else 0.0,
        lot=f"lot-{flock.barn_id}-{on:%Y%m%d}" if short else lot,
    )


@dataclass(frozen=True, slots=True)
class Now:
    """A flock's barn at a moment, for a live farm that goes on from its history."""

    at: datetime
    mean_kg: float
    temperature_c: float
    co2_ppm: float
    water_l_per_day: float
    feed_kg_per_day: float
    deaths_per_day: float
    silo_kg: float
    lot: str


def now(life: Life, flock: Flock, expected: Standard, at: datetime) -> Now:
    """The flock and its barn at a moment after the placing."""
    today = at.astimezone(ZoneInfo(life.timezone)).date()
    plan = next(plan for plan in plans(life, flock, expected) if plan.on >= today)
    passed = (at - midnight(today, life.timezone)) / timedelta(days=1)
    return Now(
        at=at,
        mean_kg=mean_kg(life, flock, expected, at),
        temperature_c=temperature_c(flock, plan.age_days),
        co2_ppm=co2_ppm(plan.age_days),
        water_l_per_day=plan.water_l,
        feed_kg_per_day=plan.feed_kg,
        deaths_per_day=plan.dead,
        silo_kg=plan.silo_kg + plan.delivered_kg - passed * plan.feed_kg,
        lot=plan.lot,
    )


def mean_kg(life: Life, flock: Flock, expected: Standard, at: datetime) -> float:
    """The true mean weight of the flock at a moment."""
    age = age_at(life, flock, at)
    over = min(1.0, max(0.0, (age - flock.differs_from_age) / (DAYS - flock.differs_from_age)))
    gradually = over * over * (3 - 2 * over)
    return expected.weight_kg(age) * (1 + (flock.growth - 1) * gradually)


def bird_kg(life: Life, flock: Flock, expected: Standard, at: datetime, chance: float) -> float:
    """The weight of the bird that `chance` in [0, 1) picks, as a scale with grams shows it."""
    return round(mean_kg(life, flock, expected, at) * (1 + flock.spread * deviation(chance)), 3)


def age_at(life: Life, flock: Flock, at: datetime) -> float:
    """In days; birds are placed at noon, so that on each date they are as old as it says."""
    placed_at = midnight(flock.placed_on, life.timezone) + timedelta(hours=12)
    return max(0.0, (at - placed_at) / timedelta(days=1))


def heat_c(flock: Flock, age_days: float) -> float:
    return flock.heat_c if age_days >= flock.hot_from_age else 0.0


def temperature_c(flock: Flock, age_days: float) -> float:
    """The mean of a day: chicks need 33 °C, birds of a month 21 °C."""
    return max(21.0, 33.0 - 0.4 * age_days) + heat_c(flock, age_days)


def co2_ppm(age_days: float) -> float:
    return 800.0 + 30.0 * min(DAYS, age_days)


def midnight(on: date, timezone: str) -> datetime:
    return datetime.combine(on, time(), tzinfo=ZoneInfo(timezone)).astimezone(UTC)


def deviation(chance: float) -> float:
    """Standard deviations from the mean, bounded."""
    return min(_FURTHEST, max(-_FURTHEST, _MIDDLE.inv_cdf(min(max(chance, 1e-9), 1 - 1e-9))))


def share(seed: int, *words: object) -> float:
    """In [0, 1), the same for the same words."""
    text = "\x1f".join(map(str, (seed, *words)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _whole(expected: float, chance: float) -> int:
    """A whole number whose mean is `expected`."""
    return math.floor(expected + chance)
