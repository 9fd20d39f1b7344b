"""SQL of batches: their standards, the facts of their days, and their figures."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime

import msgspec

from farmiq.cloud.analytics.rules import Batch, Day, Figure
from farmiq.messages.kpi import KpiType
from farmiq.plumbing import db

_FACTS = tuple(field.name for field in fields(Day))
# How long a batch is looked at beyond today: clocks of devices may be a little ahead.
DAYS_AHEAD = 2


@dataclass(frozen=True, slots=True)
class Change:
    """A figure as a row of kpi_daily; without a value it was withdrawn."""

    tenant_id: str
    farm_id: str
    barn_id: str
    batch_id: str
    kpi_date: date
    kpi_type: KpiType
    value: float | None
    unit: str
    source_event_count: int
    expected_value: float | None
    difference: float | None
    revision: int = 1

    @classmethod
    def of(cls, batch: Batch, figure: Figure) -> "Change":
        return cls(
            batch.tenant_id, batch.farm_id, batch.barn_id, batch.batch_id, figure.kpi_date,
            figure.kpi_type, float(figure.value), figure.unit, figure.source_event_count,
            figure.expected_value, figure.difference,
        )  # fmt: skip

    def withdrawn(self) -> "Change":
        return replace(
            self, value=None, source_event_count=0, expected_value=None, difference=None,
            revision=self.revision + 1,
        )  # fmt: skip


async def find_batch(tx: db.Connection, tenant_id: str, batch_id: str) -> Batch | None:
    batches = await db.fetch_as(
        tx,
        Batch,
        """
        select b.tenant_id, b.batch_id, b.farm_id, b.barn_id, f.timezone, b.species, b.breed, b.sex,
          b.placed_count, b.placed_on, b.age_at_placing_days, b.closed_on
        from batches b join farms f on f.tenant_id = b.tenant_id and f.farm_id = b.farm_id
        where b.tenant_id = %s and b.batch_id = %s
        """,
        (tenant_id, batch_id),
    )
    return batches[0] if batches else None


async def days(tx: db.Connection, tenant_id: str, batch_id: str) -> list[Day]:
    """The facts of all days of a batch as they are stored, in the order of the dates."""
    return await db.fetch_as(
        tx,
        Day,
        f"""
        select {", ".join(_FACTS)} from batch_days
        where tenant_id = %s and batch_id = %s order by kpi_date
        """,  # noqa: S608 - names of columns
        (tenant_id, batch_id),
    )


async def days_to_look_at(tx: db.Connection, batch: Batch, *, first: date) -> list[date]:
    """The dates of a batch from `first` on on which something may have happened."""
    rows = await db.fetch_all(
        tx,
        """
        select d::date from generate_series(%s::date,
          least(%s::date, fn_local_date(%s, fn_now()) + %s)::timestamp, interval '1 day') d
        """,
        max(first, batch.placed_on),
        batch.closed_on,
        batch.timezone,
        DAYS_AHEAD,
    )
    return [row[0] for row in rows]


async def save_days(
    tx: db.Connection,
    tenant_id: str,
    batch_id: str,
    changed: Collection[Day],
    gone: Collection[date],
) -> None:
    """Store changed facts, and remove days that have none any more."""
    await tx.execute(
        "delete from batch_days where tenant_id = %s and batch_id = %s and kpi_date = any(%s)",
        (tenant_id, batch_id, [*gone, *(day.kpi_date for day in changed)]),
    )
    rows = [
        {"tenant_id": tenant_id, "batch_id": batch_id}
        | {name: getattr(day, name) for name in _FACTS}
        for day in changed
    ]
    await tx.execute(
        f"""
        insert into batch_days (tenant_id, batch_id, {", ".join(_FACTS)})
        select tenant_id, batch_id, {", ".join(_FACTS)}
        from json_populate_recordset(null::batch_days, %s::text::json)
        """,  # noqa: S608 - names of columns
        (msgspec.json.encode(rows).decode(),),
    )


async def figures(
    tx: db.Connection, tenant_id: str, batch_id: str, dates: Collection[date]
) -> list[Change]:
    """The figures of these dates as they are stored, withdrawn ones too."""
    return await db.fetch_as(
        tx,
        Change,
        """
        select tenant_id, farm_id, barn_id, batch_id, kpi_date, kpi_type, value, unit,
          source_event_count, expected_value, difference, revision
        from kpi_daily where tenant_id = %s and batch_id = %s and kpi_date = any(%s)
        """,
        (tenant_id, batch_id, [*dates]),
    )


async def figure_dates(tx: db.Connection, tenant_id: str, batch_id: str) -> set[date]:
    """The dates that have figures."""
    rows = await db.fetch_all(
        tx,
        """
        select distinct kpi_date from kpi_daily
        where tenant_id = %s and batch_id = %s and value is not null
        """,
        tenant_id,
        batch_id,
    )
    return {row[0] for row in rows}


async def save_figures(tx: db.Connection, changes: Sequence[Change]) -> datetime:
    """Store changed figures; returns the time of the transaction."""
    at: datetime = await db.fetch_value(
        tx,
        """
        with saved as (
          insert into kpi_daily as k (tenant_id, farm_id, barn_id, batch_id, kpi_date, kpi_type,
            value, unit, source_event_count, expected_value, difference, revision)
          select tenant_id, farm_id, barn_id, batch_id, kpi_date, kpi_type, value, unit,
            source_event_count, expected_value, difference, revision
          from json_populate_recordset(null::kpi_daily, %s::text::json)
          on conflict on constraint kpi_daily_pkey do update set
            farm_id = excluded.farm_id, barn_id = excluded.barn_id, value = excluded.value,
            unit = excluded.unit, source_event_count = excluded.source_event_count,
            expected_value = excluded.expected_value, difference = excluded.difference,
            revision = excluded.revision, computed_at = now()
        )
        select now()
        """,
        msgspec.json.encode(changes).decode(),
    )
    return at


async def notify(tx: db.Connection, tenant_id: str) -> None:
    """With the commit, the open pages of the company read its figures again."""
    await tx.execute(
        "select pg_notify('figures_changed', company_id::text) from companies where tenant_id = %s",
        (tenant_id,),
    )
