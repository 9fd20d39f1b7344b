"""The kinds of master data: one struct each, which API, command line and CSV files share."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

import msgspec
from msgspec import Meta

from farmiq import roster
from farmiq.messages.ids import Id
from farmiq.messages.kinds import Name, Unit
from farmiq.roster import Problem, RosterError

Sex = Literal["female", "male", "mixed"]
Word = Annotated[str, Meta(min_length=1, max_length=64)]
Positive = Annotated[float, Meta(gt=0, le=1e9)]
Percent = Annotated[float, Meta(ge=0, le=100)]
AgeDays = Annotated[int, Meta(ge=0, le=10_000)]
Head = Annotated[int, Meta(gt=0, le=10_000_000)]


class Farm(msgspec.Struct, frozen=True, kw_only=True):
    farm_id: Id
    name: Name
    timezone: str

    def __post_init__(self) -> None:
        if self.timezone not in available_timezones():
            raise ValueError(f"no time zone is called {self.timezone!r}")


class Barn(msgspec.Struct, frozen=True, kw_only=True):
    farm_id: Id
    barn_id: Id
    name: Name
    capacity: Head | None = None
    area_m2: Positive | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Animals placed in a barn together; without `closed_on` they are still there."""

    batch_id: Id
    farm_id: Id
    barn_id: Id
    species: Word
    breed: Word | None = None
    sex: Sex = "mixed"
    placed_count: Head
    placed_on: date
    age_at_placing_days: AgeDays = 0
    target_weight_kg: Positive | None = None
    target_on: date | None = None
    closed_on: date | None = None

    def __post_init__(self) -> None:
        for name in ("target_on", "closed_on"):
            day = getattr(self, name)
            if day is not None and day < self.placed_on:
                raise ValueError(f"`{name}` is before `placed_on`")


class FeedProduct(msgspec.Struct, frozen=True, kw_only=True):
    feed_product_id: Id
    name: Name
    species: Word | None = None
    dry_matter_pct: Percent | None = None
    energy_mj_per_kg: Positive | None = None


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """How a metric is shown. A conversion is [factor, offset] of a unit that devices may send."""

    metric_type: Id
    label: Name
    unit: Unit
    decimals: Annotated[int, Meta(ge=0, le=6)] = 1
    min_plausible: float | None = None
    max_plausible: float | None = None
    conversions: dict[Unit, tuple[float, float]] = {}

    def __post_init__(self) -> None:
        low, high = self.min_plausible, self.max_plausible
        if low is not None and high is not None and low > high:
            raise ValueError("`min_plausible` is above `max_plausible`")


class BreedStandard(msgspec.Struct, frozen=True, kw_only=True):
    """What a breed is expected to be at an age."""

    species: Word
    breed: Word
    sex: Sex = "mixed"
    age_days: AgeDays
    weight_kg: Positive | None = None
    daily_gain_g: float | None = None
    feed_conversion: Positive | None = None
    mortality_pct: Percent | None = None
    source: Name


@dataclass(frozen=True, slots=True)
class Kind:
    """A table of master data: its rows are `struct`, told apart by the columns of `key`."""

    table: str
    noun: str
    struct: type[msgspec.Struct]
    key: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.struct.__struct_fields__

    @property
    def needed(self) -> tuple[str, ...]:
        fields = msgspec.structs.fields(self.struct)
        return tuple(field.name for field in fields if field.required)


FARMS = Kind("farms", "farm", Farm, ("farm_id",))
BARNS = Kind("barns", "barn", Barn, ("farm_id", "barn_id"))
BATCHES = Kind("batches", "batch", Batch, ("batch_id",))
FEED_PRODUCTS = Kind("feed_products", "feed product", FeedProduct, ("feed_product_id",))
METRICS = Kind("metrics", "metric", Metric, ("metric_type",))
BREED_STANDARDS = Kind(
    "breed_standards", "breed standard", BreedStandard, ("species", "breed", "sex", "age_days")
)
# What a row refers to comes before it.
KINDS = (FARMS, BARNS, BATCHES, FEED_PRODUCTS, METRICS, BREED_STANDARDS)

_FIELD = re.compile(r" - at `\$\.(?P<name>\w+)")


def read(kind: Kind, text: str) -> list[Any]:
    """The rows of a CSV file as structs. Raises RosterError, which names every bad line."""
    rows, problems = roster.rows(text, columns=kind.columns, needed=kind.needed, of=kind.noun)
    parsed: dict[tuple[Any, ...], Any] = {}
    lines: dict[tuple[Any, ...], int] = {}
    for line, cells in rows:
        row, problem = _parse_one(kind, line, cells)
        key = tuple(getattr(row, name, None) for name in kind.key)
        if problem is None and key in parsed:
            reason = f"is the {kind.noun} of line {lines[key]} again"
            problem = Problem(line, ", ".join(kind.key), reason)
        if problem is not None:
            problems.append(problem)
            continue
        parsed[key], lines[key] = row, line
    if problems:
        raise RosterError(problems)
    return [*parsed.values()]


def _parse_one(kind: Kind, line: int, cells: Mapping[str, str]) -> tuple[Any, Problem | None]:
    given: dict[str, Any] = {name: cell for name, cell in cells.items() if cell != ""}
    try:
        if "conversions" in given:
            given["conversions"] = msgspec.json.decode(given["conversions"])
        return msgspec.convert(given, kind.struct, strict=False), None
    except msgspec.ValidationError as error:
        text = str(error)
        field = _FIELD.search(text)
        reason = text[: field.start()] if field else text
        return None, Problem(line, field["name"] if field else "", reason)
    except msgspec.DecodeError:
        return None, Problem(line, "conversions", 'is not JSON such as {"F": [0.5556, -17.78]}')
