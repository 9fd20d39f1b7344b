"""What the API of master data answers, and what its lists are filtered by."""

from datetime import date
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from farmiq import api
from farmiq.api import At, Id
from farmiq.cloud.farms import store
from farmiq.cloud.farms.kinds import AgeDays, Sex
from farmiq.cloud.identity.people import Company

Status = Literal["planned", "active", "closed"]
Cursor = Field(description="The next_cursor of the page before.")
Word = Annotated[api.Text, Field(max_length=64)]


class OneId(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ends: the key of its last row."""

    id: str


class BarnKey(msgspec.Struct, frozen=True, array_like=True):
    farm_id: str
    barn_id: str


class StandardKey(msgspec.Struct, frozen=True, array_like=True):
    species: str
    breed: str
    sex: str
    age_days: AgeDays


class KeyFilter(api.Filter):
    """Which rows, in the order of their ids."""

    limit: Annotated[int, Field(ge=1, le=store.MAX_ROWS, description="At most so many.")] = 100
    company: Company = None

    @property
    def filters(self) -> dict[str, Any]:
        return self.model_dump(exclude={"limit", "cursor", "company"})

    @property
    def after(self) -> tuple[Any, ...] | None:
        cursor = getattr(self, "cursor")  # noqa: B009 - each filter has its own
        return msgspec.structs.astuple(cursor) if cursor is not None else None


class FarmFilter(KeyFilter):
    cursor: Annotated[Annotated[OneId, api.cursor_of(OneId)] | None, Cursor] = None


class BarnFilter(KeyFilter):
    cursor: Annotated[Annotated[BarnKey, api.cursor_of(BarnKey)] | None, Cursor] = None
    farm: Annotated[Id | None, Field(description="Only this farm's.")] = None


class BatchFilter(FarmFilter):
    """`status`: planned before placed_on, closed after closed_on, by the farm's own days."""

    farm: Annotated[Id | None, Field(description="Only this farm's.")] = None
    barn: Annotated[Id | None, Field(description="Only those of a barn of this name.")] = None
    species: Annotated[Word | None, Field(description="Only this species.")] = None
    status: Annotated[Status | None, Field(description="Only in this state.")] = None
    on: Annotated[api.Day | None, Field(description="Only those in their barn on this day.")] = None


class FeedProductFilter(FarmFilter):
    species: Annotated[Word | None, Field(description="Only for this species.")] = None


class MetricFilter(FarmFilter):
    pass


class BreedStandardFilter(KeyFilter):
    cursor: Annotated[Annotated[StandardKey, api.cursor_of(StandardKey)] | None, Cursor] = None
    species: Annotated[Word | None, Field(description="Only this species.")] = None
    breed: Annotated[Word | None, Field(description="Only this breed.")] = None
    sex: Annotated[Sex | None, Field(description="Only this sex.")] = None


class RegisteredFarm(api.Model):
    farm_id: str
    name: str
    timezone: str
    changed_at: At


class RegisteredFarms(api.Model):
    farms: list[RegisteredFarm]
    next_cursor: str | None


class RegisteredBarn(api.Model):
    farm_id: str
    barn_id: str
    name: str
    capacity: int | None
    area_m2: float | None
    changed_at: At


class RegisteredBarns(api.Model):
    barns: list[RegisteredBarn]
    next_cursor: str | None


class RegisteredBatch(api.Model):
    """In its barn from placed_on to closed_on, both days included; `status` follows from them."""

    batch_id: str
    farm_id: str
    barn_id: str
    species: str
    breed: str | None
    sex: Sex
    placed_count: int
    placed_on: date
    age_at_placing_days: int | None
    target_weight_kg: float | None
    target_on: date | None
    closed_on: date | None
    changed_at: At
    status: Status


class RegisteredBatches(api.Model):
    batches: list[RegisteredBatch]
    next_cursor: str | None


class RegisteredFeedProduct(api.Model):
    feed_product_id: str
    name: str
    species: str | None
    dry_matter_pct: float | None
    energy_mj_per_kg: float | None
    changed_at: At


class RegisteredFeedProducts(api.Model):
    feed_products: list[RegisteredFeedProduct]
    next_cursor: str | None


class RegisteredMetric(api.Model):
    """`conversions`: unit that a device may send -> [factor, offset] to `unit`."""

    metric_type: str
    label: str
    unit: str
    decimals: int
    min_plausible: float | None
    max_plausible: float | None
    conversions: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]]
    changed_at: At


class RegisteredMetrics(api.Model):
    metrics: list[RegisteredMetric]
    next_cursor: str | None


class RegisteredBreedStandard(api.Model):
    species: str
    breed: str
    sex: Sex
    age_days: int
    weight_kg: float | None
    daily_gain_g: float | None
    feed_conversion: float | None
    mortality_pct: float | None
    source: str
    changed_at: At


class RegisteredBreedStandards(api.Model):
    breed_standards: list[RegisteredBreedStandard]
    next_cursor: str | None


class Imported(api.Model):
    """`changed` rows are new or other than before; with `dry_run` nothing was written."""

    rows: int
    changed: int
    dry_run: bool


class ImportFilter(api.Filter):
    dry_run: Annotated[bool, Field(description="Only say what is wrong.")] = False
    company: Company = None
