"""What reports say of a batch and its farm, in SQL; run with the caller's rights, for one company.

Figures come from kpi_daily and batch_days, where pages and the API take them from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo

from farmiq.cloud.figures import queries as figures
from farmiq.cloud.reports.periods import Period
from farmiq.plumbing import db

Item = TypeVar("Item")
# A report of a farm has pages of so many batches; it names the others.
MAX_BATCHES = 8
MAX_LISTED = 12
_GROWTH = ["weight_mean", "weight_p10", "weight_p90", "weight_cv"]
_NOTES = ["note", "welfare", "housing", "treatment", "vaccination"]


@dataclass(frozen=True, slots=True)
class Farm:
    farm_id: str
    name: str
    timezone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    batch_id: str
    farm_id: str
    farm: str
    barn_id: str
    barn: str
    timezone: str
    species: str
    breed: str | None
    sex: str
    placed_count: int
    placed_on: date
    age_at_placing_days: int | None
    closed_on: date | None
    target_weight_kg: float | None
    target_on: date | None
    safe_to_sell_from: date | None

    def age(self, on: date) -> int:
        """Since they were placed, if nobody knows their age."""
        return (self.age_at_placing_days or 0) + (on - self.placed_on).days


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of kpi_daily."""

    kpi_date: date
    kpi_type: str
    value: float
    unit: str
    source_event_count: int
    expected_value: float | None
    difference: float | None


@dataclass(frozen=True, slots=True)
class Day:
    """What of batch_days is no figure of kpi_daily."""

    kpi_date: date
    dead: float
    culled: float
    weighed_count: int
    outlier_count: int


@dataclass(frozen=True, slots=True)
class Alert:
    severity: str
    state: str
    message: str
    barn: str | None
    opened_at: datetime
    resolved_at: datetime | None


@dataclass(frozen=True, slots=True)
class Note:
    occurred_at: datetime
    record_type: str
    text: str | None
    number: float | None
    product: str | None


@dataclass(frozen=True, slots=True)
class Listed(Generic[Item]):
    """The first of them, and how many there are."""

    items: Sequence[Item] = ()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """All that a report of a batch is made of."""

    batch: Batch
    # Weights of all days up to the end of the period, by date.
    weights: Sequence[Figure]
    # All figures of the period and of the one before it.
    figures: Sequence[Figure]
    # The newest of each type up to the end of the period.
    latest: Sequence[Figure]
    days: Sequence[Day]
    # Age and weight of the breed standard.
    standard: Sequence[tuple[int, float]]
    alerts: Listed[Alert]
    notes: Listed[Note]


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmFacts:
    company: str
    farm: Farm
    batches: Sequence[BatchFacts]
    # Batches that were there in the period beyond MAX_BATCHES.
    others: Sequence[str] = field(default=())
    alerts: Listed[Alert]


async def farms(tx: db.Connection, tenant_id: str) -> list[Farm]:
    return await db.fetch_as(
        tx,
        Farm,
        "select farm_id, name, timezone from farms where tenant_id = %s order by name, farm_id",
        (tenant_id,),
    )


async def farm(tx: db.Connection, tenant_id: str, farm_id: str) -> Farm | None:
    rows = await db.fetch_as(
        tx,
        Farm,
        "select farm_id, name, timezone from farms where tenant_id = %s and farm_id = %s",
        (tenant_id, farm_id),
    )
    return rows[0] if rows else None


_BATCH = """
  select b.batch_id, b.farm_id, f.name as farm, b.barn_id, n.name as barn, f.timezone, b.species,
    b.breed, b.sex, b.placed_count, b.placed_on, b.age_at_placing_days, b.closed_on,
    b.target_weight_kg, b.target_on,
    fn_safe_to_sell_from(b.tenant_id, b.batch_id) as safe_to_sell_from
  from batches b
  join farms f on f.tenant_id = b.tenant_id and f.farm_id = b.farm_id
  join barns n on n.tenant_id = b.tenant_id and n.farm_id = b.farm_id and n.barn_id = b.barn_id
"""


async def batches(tx: db.Connection, tenant_id: str, *, limit: int) -> list[Batch]:
    """Batches for which there may be a report: those that are there first, then newest first."""
    return await db.fetch_as(
        tx,
        Batch,
        f"""
        {_BATCH} where b.tenant_id = %s
        order by b.closed_on is not null, b.placed_on desc, b.batch_id limit %s
        """,
        (tenant_id, limit),
    )


async def batch(tx: db.Connection, tenant_id: str, batch_id: str) -> Batch | None:
    rows = await db.fetch_as(
        tx, Batch, f"{_BATCH} where b.tenant_id = %s and b.batch_id = %s", (tenant_id, batch_id)
    )
    return rows[0] if rows else None


async def company_name(tx: db.Connection, tenant_id: str) -> str:
    name: str | None = await db.fetch_value(
        tx, "select name from companies where tenant_id = %s", tenant_id
    )
    return name or tenant_id


async def batch_facts(tx: db.Connection, tenant_id: str, of: Batch, period: Period) -> BatchFacts:
    begin, end = period.bounds(ZoneInfo(of.timezone))
    values: dict[str, Any] = {
        "tenant": tenant_id, "batch": of.batch_id, "farm": of.farm_id, "barn": of.barn_id,
        "first": period.first, "last": period.last, "before": period.before().first,
        "begin": begin, "end": end,
        "growth": _GROWTH, "notes": _NOTES, "limit": MAX_LISTED,
    }  # fmt: skip
    standard = await figures.standard(tx, tenant_id, species=of.species, breed=of.breed, sex=of.sex)
    if of.age_at_placing_days is None:
        standard = []
    return BatchFacts(
        batch=of,
        weights=await _weights(tx, values),
        figures=await _figures(tx, values),
        latest=await _latest(tx, values),
        days=await _days(tx, values),
        standard=[(row.age_days, row.weight_kg) for row in standard if row.weight_kg is not None],
        alerts=await _alerts(tx, values),
        notes=await _notes(tx, values),
    )


async def farm_facts(tx: db.Connection, tenant_id: str, of: Farm, period: Period) -> FarmFacts:
    there = await db.fetch_as(
        tx,
        Batch,
        f"""
        {_BATCH} where b.tenant_id = %s and b.farm_id = %s and b.placed_on <= %s
          and (b.closed_on is null or b.closed_on >= %s)
        order by n.name, b.placed_on, b.batch_id
        """,
        (tenant_id, of.farm_id, period.last, period.first),
    )
    begin, end = period.bounds(ZoneInfo(of.timezone))
    wanted = {
        "tenant": tenant_id, "farm": of.farm_id, "barn": None, "batch": None,
        "begin": begin, "end": end, "limit": MAX_LISTED,
    }  # fmt: skip
    return FarmFacts(
        company=await company_name(tx, tenant_id),
        farm=of,
        batches=[await batch_facts(tx, tenant_id, batch, period) for batch in there[:MAX_BATCHES]],
        others=[batch.batch_id for batch in there[MAX_BATCHES:]],
        alerts=await _alerts(tx, wanted),
    )


_FIGURE = """
  select kpi_date, kpi_type, value, unit, source_event_count, expected_value, difference
  from kpi_daily where tenant_id = %(tenant)s and batch_id = %(batch)s and value is not null
"""


async def _weights(tx: db.Connection, values: dict[str, Any]) -> list[Figure]:
    return await db.fetch_as(
        tx,
        Figure,
        f"""
        {_FIGURE} and kpi_type = any(%(growth)s) and kpi_date <= %(last)s
        order by kpi_date, kpi_type
        """,
        values,
    )


async def _figures(tx: db.Connection, values: dict[str, Any]) -> list[Figure]:
    return await db.fetch_as(
        tx,
        Figure,
        f"{_FIGURE} and kpi_date between %(before)s and %(last)s order by kpi_date, kpi_type",
        values,
    )


async def _latest(tx: db.Connection, values: dict[str, Any]) -> list[Figure]:
    return await db.fetch_as(
        tx,
        Figure,
        """
        select distinct on (kpi_type) kpi_date, kpi_type, value, unit, source_event_count,
          expected_value, difference
        from kpi_daily
        where tenant_id = %(tenant)s and batch_id = %(batch)s and value is not null
          and kpi_date <= %(last)s
        order by kpi_type, kpi_date desc
        """,
        values,
    )


async def _days(tx: db.Connection, values: dict[str, Any]) -> list[Day]:
    return await db.fetch_as(
        tx,
        Day,
        """
        select kpi_date, dead, culled, weighed_count, outlier_count from batch_days
        where tenant_id = %(tenant)s and batch_id = %(batch)s
          and kpi_date between %(before)s and %(last)s
        order by kpi_date
        """,
        values,
    )


async def _alerts(tx: db.Connection, values: dict[str, Any]) -> Listed[Alert]:
    """Those that were open at some time in the period, the most severe first."""
    rows = await db.fetch_dicts(
        tx,
        """
        select e.severity, e.state, e.message, n.name as barn, e.opened_at, e.resolved_at,
          count(*) over () as total
        from alert_episodes e
        left join barns n on n.tenant_id = e.tenant_id and n.farm_id = e.farm_id
          and n.barn_id = e.barn_id
        where e.tenant_id = %(tenant)s and e.farm_id = %(farm)s and e.state <> 'withdrawn'
          and e.opened_at < %(end)s and (e.resolved_at is null or e.resolved_at >= %(begin)s)
          and (%(batch)s::text is null or e.batch_id = %(batch)s
            or e.batch_id is null and e.barn_id = %(barn)s)
        order by array_position(array['security', 'critical', 'warning', 'info'], e.severity),
          e.opened_at desc, e.episode_id
        limit %(limit)s
        """,
        values,
    )
    total = rows[0]["total"] if rows else 0
    for row in rows:
        del row["total"]
    return Listed([Alert(**row) for row in rows], total)


async def _notes(tx: db.Connection, values: dict[str, Any]) -> Listed[Note]:
    """What people wrote down, oldest first."""
    rows = await db.fetch_dicts(
        tx,
        """
        select b.occurred_at, b.record_type, r.value_text as text, b.value_number as number,
          r.product, count(*) over () as total
        from fn_batch_records(%(tenant)s, %(batch)s, %(first)s, %(last)s) b
        join counted_records r on r.tenant_id = %(tenant)s and r.record_id = b.record_id
          and r.occurred_at = b.occurred_at
        where b.record_type = any(%(notes)s)
        order by b.occurred_at, b.record_id limit %(limit)s
        """,
        values,
    )
    total = rows[0]["total"] if rows else 0
    for row in rows:
        del row["total"]
    return Listed([Note(**row) for row in rows], total)
