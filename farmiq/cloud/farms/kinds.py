"""The kinds of master data: one struct each, which API, command line and CSV files share."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from farmiq import roster
from farmiq.messages.ids import Id
from farmiq.messages.kinds import Name, Unit
from farmiq.messages.wording import worded
from farmiq.plumbing import zones
from farmiq.roster import Problem, RosterError

Sex = Literal["female", "male", "mixed"]
Word = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[^\x00]*$")]
Positive = Annotated[float, Meta(gt=0, le=1e9)]
Finite = Annotated[float, Meta(ge=-1e9, le=1e9)]
Percent = Annotated[float, Meta(ge=0, le=100)]
MAX_AGE_DAYS = 10_000
AgeDays = Annotated[int, Meta(ge=0, le=MAX_AGE_DAYS)]
Head = Annotated[int, Meta(gt=0, le=10_000_000)]
Conversions = Annotated[dict[Unit, tuple[Finite, Finite]], Meta(max_length=100)]
FIRST_DAY, LAST_DAY = date(1990, 1, 1), date(2199, 12, 31)

# A kind is a struct of its values, which a PUT sends, and one with the ids that tell rows apart.


class FarmValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    timezone: str

    def __post_init__(self) -> None:
        if self.timezone not in zones.names():
            raise ValueError(
                worded("no time zone is called %(zone)s", zone=repr(self.timezone[:64]))
            )


class Farm(FarmValues, frozen=True, kw_only=True):
    farm_id: Id


class BarnValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    capacity: Head | None = None
    area_m2: Positive | None = None


class Barn(BarnValues, frozen=True, kw_only=True):
    farm_id: Id
    barn_id: Id


class BatchValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Animals placed in a barn together; without `closed_on` they are still there.

    `age_at_placing_days` is 0 for animals of their first day, null if nobody knows: then neither
    standards nor alert rules with ages apply.
    """

    farm_id: Id
    barn_id: Id
    species: Word
    breed: Word | None = None
    sex: Sex = "mixed"
    placed_count: Head
    placed_on: date
    age_at_placing_days: AgeDays | None = None
    target_weight_kg: Positive | None = None
    target_on: date | None = None
    closed_on: date | None = None

    def __post_init__(self) -> None:
        days = {name: getattr(self, name) for name in ("placed_on", "target_on", "closed_on")}
        reasons = [
            worded("`%(field)s` is not between the years 1990 and 2199", field=name)
            for name, day in days.items()
            if day is not None and not FIRST_DAY <= day <= LAST_DAY
        ]
        reasons += [
            worded("`%(field)s` is before `placed_on`", field=name)
            for name, day in days.items()
            if day is not None and day < self.placed_on
        ]
        if reasons:
            raise ValueError("; ".join(reasons))


class Batch(BatchValues, frozen=True, kw_only=True):
    batch_id: Id


class FeedProductValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    species: Word | None = None
    dry_matter_pct: Percent | None = None
    energy_mj_per_kg: Positive | None = None


class FeedProduct(FeedProductValues, frozen=True, kw_only=True):
    feed_product_id: Id


class MetricValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a metric is shown. A conversion is [factor, offset] of a unit that devices may send."""

    label: Name
    unit: Unit
    decimals: Annotated[int, Meta(ge=0, le=6)] = 1
    min_plausible: Finite | None = None
    max_plausible: Finite | None = None
    conversions: Conversions = {}

    def __post_init__(self) -> None:
        low, high = self.min_plausible, self.max_plausible
        if low is not None and high is not None and low > high:
            raise ValueError("`min_plausible` is above `max_plausible`")


class Metric(MetricValues, frozen=True, kw_only=True):
    metric_type: Id


class BreedStandardValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a breed is expected to be at an age."""

    weight_kg: Positive | None = None
    daily_gain_g: Finite | None = None
    feed_conversion: Positive | None = None
    mortality_pct: Percent | None = None
    source: Name


class BreedStandard(BreedStandardValues, frozen=True, kw_only=True):
    species: Word
    breed: Word
    sex: Sex = "mixed"
    age_days: AgeDays


@dataclass(frozen=True, slots=True)
class Kind:
    """A table of master data: its rows are `struct`, told apart by the columns of `key`."""

    table: str
    noun: str
    struct: type[msgspec.Struct]
    key: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The ids first."""
        fields = self.struct.__struct_fields__
        return *self.key, *(name for name in fields if name not in self.key)

    @property
    def needed(self) -> tuple[str, ...]:
        fields = {field.name: field for field in msgspec.structs.fields(self.struct)}
        return tuple(name for name in self.columns if fields[name].required)


FARMS = Kind("farms", "farm", Farm, ("farm_id",))
BARNS = Kind("barns", "barn", Barn, ("farm_id", "barn_id"))
BATCHES = Kind("batches", "batch", Batch, ("batch_id",))
FEED_PRODUCTS = Kind("feed_products", "feed product", FeedProduct, ("feed_product_id",))
METRICS = Kind("metrics", "metric", Metric, ("metric_type",))
BREED_STANDARDS = Kind(
    "breed_standards", "breed standard", BreedStandard, ("species", "breed", "sex", "age_days")
)
# For people who fill in a spreadsheet.
_REASONS = {
    "Invalid RFC3339 encoded date": "is no day such as 2026-05-31",
    **dict.fromkeys(("Expected `int`, got `str`", "Expected `int | null`, got `str`"),
        "is no whole number"),
    **dict.fromkeys(("Expected `float`, got `str`", "Expected `float | null`, got `str`"),
        "is no number such as 2.4"),
}  # fmt: skip
# What a row refers to comes before it.
KINDS = (FARMS, BARNS, BATCHES, FEED_PRODUCTS, METRICS, BREED_STANDARDS)


def read(kind: Kind, text: str) -> list[Any]:
    """The rows of a CSV file as structs. Raises RosterError, which names every bad line."""
    parsed, problems = parse(kind, text)
    if problems:
        raise RosterError(problems)
    return [*parsed.values()]


def parse(kind: Kind, text: str) -> tuple[dict[int, Any], list[Problem]]:
    """The rows of a CSV file by their lines, and everything that is wrong with the others."""
    rows, problems = roster.rows(
        text, columns=kind.columns, needed=kind.needed, of=kind.noun, stops_at_header=False
    )
    parsed: dict[int, Any] = {}
    lines: dict[tuple[Any, ...], int] = {}
    for line, cells in rows:
        row, reasons = _parse_one(kind, cells)
        key = tuple(getattr(row, name, None) for name in kind.key)
        if row is not None and key in lines:
            reasons.append((", ".join(kind.key), f"is the {kind.noun} of line {lines[key]} again"))
        problems += [Problem(line, *reason) for reason in reasons]
        if row is not None and not reasons:
            parsed[line], lines[key] = row, line
    return parsed, problems


def _parse_one(kind: Kind, cells: Mapping[str, str]) -> tuple[Any, list[tuple[str, str]]]:
    """The row of these cells, or None; and (field, reason) of everything that is wrong."""
    values: dict[str, Any] = {}
    reasons = []
    for field in msgspec.structs.fields(kind.struct):
        cell = cells.get(field.name, "")
        if cell:
            try:
                values[field.name] = _value(field, cell)
            except ValueError as error:
                values[field.name] = None
                reason = str(error).partition(" - at `")[0]
                reasons.append((field.name, _REASONS.get(reason, reason)))
        elif field.required:
            values[field.name] = None
            # A column that is not there is named once, with the header.
            reasons += [(field.name, "is missing")] if field.name in cells else []
    try:
        row = kind.struct(**values)
    except ValueError as error:
        return None, [*reasons, ("", str(error))]
    except TypeError:
        # A rule needs a value that is wrong in itself.
        return None, reasons
    return None if None in map(values.get, kind.needed) else row, reasons


def _value(field: msgspec.structs.FieldInfo, cell: str) -> Any:
    """Raises ValueError with the reason."""
    if field.name != "conversions":
        return msgspec.convert(cell, field.type, strict=False)
    try:
        return msgspec.convert(msgspec.json.decode(cell), field.type)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        raise ValueError('is not JSON such as {"F": [0.5556, -17.78]}') from None
