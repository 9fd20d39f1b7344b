"""Queries of figures, for the API and the command line; run with the rights of the caller."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from farmiq.farm.standards import StandardRow
from farmiq.plumbing import db


async def page(tx: db.Connection, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Figures that were not withdrawn, newest date first, then by batch and type."""
    return await db.fetch_dicts(
        tx,
        """
        select k.kpi_date, k.farm_id, k.barn_id, k.batch_id, k.kpi_type, k.value, k.unit,
          k.source_event_count, k.expected_value, k.difference, k.revision, k.computed_at
        from kpi_daily k
        where k.tenant_id = %(tenant)s and k.value is not null
          and (%(farm)s::text is null or k.farm_id = %(farm)s)
          and (%(barn)s::text is null or k.barn_id = %(barn)s)
          and (%(batch)s::text is null or k.batch_id = %(batch)s)
          and (%(kpi_type)s::text is null or k.kpi_type = %(kpi_type)s)
          and (%(begin)s::date is null or k.kpi_date >= %(begin)s)
          and (%(end)s::date is null or k.kpi_date <= %(end)s)
          and (%(after_date)s::date is null or k.kpi_date <= %(after_date)s)
          and (%(after_date)s::date is null or k.kpi_date < %(after_date)s
            or (k.batch_id, k.kpi_type) > (%(after_batch)s, %(after_type)s))
        order by k.kpi_date desc, k.batch_id, k.kpi_type
        limit %(limit)s
        """,
        wanted,
    )


async def summary(tx: db.Connection, tenant_id: str, batch_id: str) -> dict[str, Any] | None:
    """A batch with its animals of today, and the latest figure of each type; None if unknown."""
    batches = await summaries(tx, tenant_id, [batch_id])
    return batches[0] if batches else None


async def summaries(
    tx: db.Connection, tenant_id: str, batch_ids: Sequence[str]
) -> list[dict[str, Any]]:
    """As `summary`, of many batches, in the order of their ids."""
    batches = await db.fetch_dicts(
        tx,
        """
        select b.batch_id, b.farm_id, b.barn_id, b.species, b.breed, b.sex, b.placed_count,
          b.placed_on, b.closed_on, b.target_weight_kg, b.target_on, t.today,
          coalesce(b.age_at_placing_days, 0) + (least(t.today, b.closed_on) - b.placed_on)
            as age_days, b.age_at_placing_days is not null as is_age_known,
          coalesce((select k.value from kpi_daily k
            where k.tenant_id = b.tenant_id and k.batch_id = b.batch_id
              and k.kpi_type = 'head_count' and k.value is not null
            order by k.kpi_date desc limit 1), b.placed_count) as head_count,
          d.dead, d.culled, d.weighed_count, d.outlier_count,
          fn_safe_to_sell_from(b.tenant_id, b.batch_id) as safe_to_sell_from
        from batches b
          join farms f on f.tenant_id = b.tenant_id and f.farm_id = b.farm_id
          cross join lateral (select fn_local_date(f.timezone, fn_now()) as today) t
          cross join lateral (
            select coalesce(sum(d.dead), 0) as dead, coalesce(sum(d.culled), 0) as culled,
              coalesce(sum(d.weighed_count), 0)::bigint as weighed_count,
              coalesce(sum(d.outlier_count), 0)::bigint as outlier_count
            from batch_days d where d.tenant_id = b.tenant_id and d.batch_id = b.batch_id) d
        where b.tenant_id = %s and b.batch_id = any(%s)
        order by b.batch_id
        """,
        (tenant_id, [*batch_ids]),
    )
    figures: dict[str, list[dict[str, Any]]] = {batch["batch_id"]: [] for batch in batches}
    for figure in await db.fetch_dicts(
        tx,
        """
        select distinct on (k.batch_id, k.kpi_type) k.batch_id, k.kpi_type, k.kpi_date, k.value,
          k.unit, k.source_event_count, k.expected_value, k.difference
        from kpi_daily k
        where k.tenant_id = %s and k.batch_id = any(%s) and k.value is not null
        order by k.batch_id, k.kpi_type, k.kpi_date desc
        """,
        (tenant_id, [*figures]),
    ):
        figures[figure.pop("batch_id")].append(figure)
    return [{**batch, "figures": figures[batch["batch_id"]]} for batch in batches]


async def weighed_dates(
    tx: db.Connection,
    tenant_id: str,
    batch_id: str,
    *,
    begin: date | None,
    end: date | None,
    limit: int,
) -> list[dict[str, Any]]:
    """Days of a batch with weighings, newest first, with their statistics."""
    return await db.fetch_dicts(
        tx,
        """
        select d.kpi_date, d.weighed_count, d.outlier_count, d.weight_mean_kg, d.weight_median_kg,
          d.weight_p10_kg, d.weight_p90_kg, d.weight_cv_pct, d.weight_uniformity_pct,
          d.estimated_count, d.vision_residual_pct
        from batch_days d
        where d.tenant_id = %(tenant)s and d.batch_id = %(batch)s and d.weighed_count > 0
          and (%(begin)s::date is null or d.kpi_date >= %(begin)s)
          and (%(end)s::date is null or d.kpi_date <= %(end)s)
        order by d.kpi_date desc limit %(limit)s
        """,
        {"tenant": tenant_id, "batch": batch_id, "begin": begin, "end": end, "limit": limit},
    )


async def weighings(
    tx: db.Connection, tenant_id: str, batch_id: str, dates: list[date]
) -> list[dict[str, Any]]:
    """The sessions behind the statistics of these days, with those that are outliers."""
    return await db.fetch_dicts(
        tx,
        """
        select w.kpi_date, w.session_id, w.weight_kg, w.is_outlier, w.start_at, w.device_id
        from unnest(%s::date[]) d cross join lateral fn_batch_weighings(%s, %s, d, d) w
        order by w.kpi_date desc, w.start_at, w.session_id
        """,
        (dates, tenant_id, batch_id),
    )


async def has_batch(tx: db.Connection, tenant_id: str, batch_id: str) -> bool:
    return bool(
        await db.fetch_value(
            tx,
            "select exists (select from batches where tenant_id = %s and batch_id = %s)",
            tenant_id,
            batch_id,
        )
    )


async def standard(
    tx: db.Connection, tenant_id: str, *, species: str, breed: str | None, sex: str
) -> list[StandardRow]:
    """The standard of a breed and sex, else that of both sexes together, by age.

    Upper and lower case do not matter (Broiler, broiler); an exact match comes first.
    """
    return await db.fetch_as(
        tx,
        StandardRow,
        """
        with of_breed as (
          select *, rank() over (order by (species, breed) = (%(species)s, %(breed)s) desc,
            sex = %(sex)s desc, species, breed) as place
          from breed_standards
          where tenant_id = %(tenant_id)s and lower(species) = lower(%(species)s)
            and lower(breed) = lower(%(breed)s) and sex in (%(sex)s, 'mixed')
        )
        select age_days, weight_kg, daily_gain_g, feed_conversion, mortality_pct from of_breed
        where place = 1 order by age_days
        """,
        {"tenant_id": tenant_id, "species": species, "breed": breed, "sex": sex},
    )
