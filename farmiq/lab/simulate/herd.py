"""Pure: a herd that grows, and who of it steps on which scale when.

Weights follow Gompertz' curve, as pigs do: about 26 kg with ten weeks, 107 kg with 160 days. Most
come in the morning and in the late afternoon. Chance comes from the seed alone: the same herd does
the same things again.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

MATURE_KG, BIRTH_KG, RATE = 210.0, 1.4, 0.0125
DAY_H = 24.0
# What most visitors do, and what some do.
Manner = Literal["stands", "leaves", "restless", "pair"]
_MANNERS: tuple[tuple[float, Manner], ...] = (
    (0.84, "stands"),
    (0.92, "leaves"),
    (0.96, "restless"),
    (1.0, "pair"),
)
_TROT_S = 0.6


@dataclass(frozen=True, slots=True)
class Animal:
    """`vigour` is how much heavier than the middle of the herd it will be."""

    number: int
    age_days: float
    vigour: float


@dataclass(frozen=True, slots=True)
class Visit:
    """An animal on the scale for `stands_s`; `gap_s` is how long the scale is empty before it."""

    number: int
    animal: Animal
    weight_kg: float
    gap_s: float
    stands_s: float
    manner: Manner
    second_kg: float = 0.0

    @property
    def is_weighable(self) -> bool:
        return self.manner == "stands"


def herd(*, seed: int, count: int, age_days: float) -> tuple[Animal, ...]:
    return tuple(
        Animal(
            number,
            age_days + 4 * _share(seed, "age", number) - 2,
            0.9 + 0.2 * _share(seed, "vigour", number),
        )
        for number in range(1, count + 1)
    )


def weight_kg(animal: Animal, *, day: float) -> float:
    """What it weighs `day` days from now; to 100 g, as a barn scale shows it."""
    age = animal.age_days + day
    grown = MATURE_KG * math.exp(-math.log(MATURE_KG / BIRTH_KG) * math.exp(-RATE * age))
    return round(max(BIRTH_KG, grown * animal.vigour), 1)


def bustle(hour: float) -> float:
    """How much goes on at this hour: 1 in the middle, most at 7 and at 17, least at night."""
    peaks = sum(math.exp(-(((hour - peak) / 2.5) ** 2)) for peak in (7.0, 17.0))
    return 0.25 + 1.5 * peaks


def visit(
    animals: tuple[Animal, ...],
    number: int,
    *,
    seed: int,
    day: float,
    gap_s: float,
    stands_s: float,
    calm: bool = False,
    weigh: Callable[[Animal], float] | None = None,
) -> Visit:
    """The visit of this number; `day` counts days, with its fraction. `calm`: everybody stands.

    `weigh` gives the weights of animals that grow otherwise than this herd.
    """

    def share(what: str) -> float:
        return _share(seed, what, number)

    animal = animals[int(share("who") * len(animals))]
    hour = day % 1 * DAY_H
    manner: Manner = "stands"
    if not calm:
        manner = next(name for limit, name in _MANNERS if share("manner") < limit)
    other = animals[int(share("other") * len(animals))]
    weigh = weigh or partial(weight_kg, day=day)
    return Visit(
        number,
        animal,
        weigh(animal),
        gap_s=gap_s * (0.5 + share("gap")) / bustle(hour),
        stands_s=stands_s * (0.8 + 0.4 * share("stands")),
        manner=manner,
        second_kg=weigh(other),
    )


def has_left(visit: Visit, *, after_s: float) -> bool:
    """Whether the animal has gone again so long after it came, before it could be weighed."""
    return visit.manner == "leaves" and after_s > _TROT_S * 1.5


def on_scale_kg(visit: Visit, *, after_s: float, chance: float) -> float:
    """What the scale shows so long after the animal came; `chance` in [0, 1) is its noise."""
    noise = chance * 2 - 1
    if after_s < _TROT_S or visit.manner == "restless":
        return visit.weight_kg * (1 + 0.12 * noise)
    if has_left(visit, after_s=after_s):
        return 0.0
    if visit.manner == "pair" and after_s > visit.stands_s / 2:
        return visit.weight_kg + visit.second_kg * (1 + 0.02 * noise)
    return visit.weight_kg + min(0.1, visit.weight_kg / 500) * noise


def empty_kg(*, seconds: float, chance: float, coarseness: float = 1.0) -> float:
    """The empty scale: a slow drift of half a kilogram, and noise; less of both on a finer one."""
    return coarseness * (0.5 * math.sin(seconds / 600) + 0.05 * (chance * 2 - 1))


def _share(seed: int, what: str, number: int) -> float:
    """In [0, 1), the same for the same words."""
    digest = hashlib.blake2b(f"{seed} {what} {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
