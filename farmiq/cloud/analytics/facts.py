"""SQL of facts: what happened to a batch on a date, from the tables of events and rollups."""

from collections.abc import Collection, Sequence
from datetime import date
from typing import Any

import msgspec

from farmiq.cloud.analytics.rules import Batch, Day, thi_limit
from farmiq.messages import barn, feed
from farmiq.plumbing import db

# Units in which telemetry is taken as it is; others as the metric's conversions say.
_UNITS = {"temperature": ["°C", "C"], "humidity": ["%"], "water.flow": ["l/min", "L/min"]}


async def read(tx: db.Connection, batch: Batch, dates: Collection[date]) -> list[Day]:
    """The facts of these dates from the tables of events; days without any are left out."""
    wanted = [on for on in dates if batch.has(on)]
    if not wanted:
        return []
    by_date: dict[date, dict[str, Any]] = {on: {} for on in wanted}
    for select in (_hours, _weighings, _intakes, _records, _climate):
        for row in await select(tx, batch, wanted):
            by_date[row.pop("kpi_date")].update(row)
    days_of_batch = [_day(on, values) for on, values in by_date.items()]
    return [day for day in days_of_batch if not day.is_empty]


def _day(on: date, values: dict[str, Any]) -> Day:
    """Water that people wrote down counts before what meters say."""
    by_meter, meter_count = values.pop("metered_l", None), values.pop("metered_count", 0)
    if not values.get("water_count") and by_meter is not None:
        values |= {"water_l": by_meter, "water_count": meter_count}
    return Day(kpi_date=on, **values)


# The dates with the moments at which they begin and end.
_SPANS = """
    select d as kpi_date, fn_midnight(%(timezone)s, d) as begin_at,
      fn_midnight(%(timezone)s, d + 1) as end_at
    from unnest(%(dates)s::date[]) d
"""


def _arguments(batch: Batch, dates: Sequence[date]) -> dict[str, Any]:
    return {
        "tenant_id": batch.tenant_id, "batch_id": batch.batch_id, "farm_id": batch.farm_id,
        "barn_id": batch.barn_id, "timezone": batch.timezone, "dates": [*dates],
    }  # fmt: skip


async def _hours(tx: db.Connection, batch: Batch, dates: Sequence[date]) -> list[dict[str, Any]]:
    """How many hours of UTC begin on each date: 23, 24 or 25."""
    return await db.fetch_dicts(
        tx,
        f"""
        select kpi_date, (ceil(extract(epoch from end_at) / 3600)
          - ceil(extract(epoch from begin_at) / 3600))::int as hours
        from ({_SPANS}) span
        """,  # noqa: S608 - our own text
        _arguments(batch, dates),
    )


async def _weighings(
    tx: db.Connection, batch: Batch, dates: Sequence[date]
) -> list[dict[str, Any]]:
    """In the order of the weights, so that the same weighings always give the same sums.

    Of several estimates of a session by vision the last one counts.
    """
    return await db.fetch_dicts(
        tx,
        """
        with weighed as (
          select w.kpi_date, w.weight_kg, w.is_outlier,
            100 * (e.predicted_weight_kg - w.weight_kg) / w.weight_kg as residual_pct
          from unnest(%(dates)s::date[]) d
            cross join lateral fn_batch_weighings(%(tenant_id)s, %(batch_id)s, d, d) w
            left join lateral (
              select i.predicted_weight_kg from inference_events i
              where i.tenant_id = %(tenant_id)s and i.session_id = w.session_id
                and i.predicted_weight_kg is not null and not i.clock_suspect
              order by i.occurred_at desc, i.event_id desc limit 1) e on w.weight_kg > 0
        ), mean as (
          select kpi_date, avg(weight_kg order by weight_kg) as mean_kg from weighed
          where not is_outlier group by kpi_date
        )
        select kpi_date, count(*) filter (where not is_outlier) as weighed_count,
          count(*) filter (where is_outlier) as outlier_count, mean_kg as weight_mean_kg,
          percentile_cont(0.5) within group (order by weight_kg) filter (where not is_outlier)
            as weight_median_kg,
          percentile_cont(0.1) within group (order by weight_kg) filter (where not is_outlier)
            as weight_p10_kg,
          percentile_cont(0.9) within group (order by weight_kg) filter (where not is_outlier)
            as weight_p90_kg,
          100 * stddev_samp(weight_kg order by weight_kg) filter (where not is_outlier) / mean_kg
            as weight_cv_pct,
          case when count(*) filter (where not is_outlier) >= 2 then
            100.0::float8 * count(*) filter (where not is_outlier
              and abs(weight_kg - mean_kg) <= 0.1::float8 * mean_kg)
            / count(*) filter (where not is_outlier) end as weight_uniformity_pct,
          count(residual_pct) filter (where not is_outlier) as estimated_count,
          avg(residual_pct order by residual_pct) filter (where not is_outlier)
            as vision_residual_pct
        from weighed join mean using (kpi_date)
        group by kpi_date, mean_kg
        """,
        _arguments(batch, dates),
    )


async def _intakes(tx: db.Connection, batch: Batch, dates: Sequence[date]) -> list[dict[str, Any]]:
    return await db.fetch_dicts(
        tx,
        f"""
        with span as materialized ({_SPANS}), offered as (
          select s.kpi_date, e.* from span s join counted_feed e
            on e.tenant_id = %(tenant_id)s and e.batch_id = %(batch_id)s
            and e.occurred_at >= s.begin_at and e.occurred_at < s.end_at
          union all
          select s.kpi_date, e.* from span s join counted_feed e
            on e.tenant_id = %(tenant_id)s and e.farm_id = %(farm_id)s
            and e.barn_id = %(barn_id)s
            and e.occurred_at >= s.begin_at and e.occurred_at < s.end_at
            and (e.batch_id is null or e.batch_derived and e.batch_id <> %(batch_id)s
              and fn_batch_of(e.tenant_id, e.farm_id, e.barn_id, e.batch_id, true, e.occurred_at)
                = %(batch_id)s)
        )
        select kpi_date, sum(quantity_kg order by quantity_kg) as feed_kg,
          count(*) as intake_count
        from offered
        where event_type = %(intake)s and not clock_suspect and quantity_kg is not null
        group by kpi_date
        """,  # noqa: S608 - our own text
        {**_arguments(batch, dates), "intake": feed.INTAKE_RECORDED},
    )


async def _records(tx: db.Connection, batch: Batch, dates: Sequence[date]) -> list[dict[str, Any]]:
    return await db.fetch_dicts(
        tx,
        """
        with counted as (
          select r.*, case when record_type <> 'water' or unit is null then value_number
            else value_number * (%(litres)s::jsonb ->> unit)::float8 end as value
          from unnest(%(dates)s::date[]) d
            cross join lateral fn_batch_records(%(tenant_id)s, %(batch_id)s, d, d) r
        )
        select kpi_date,
          coalesce(sum(value) filter (where record_type = 'mortality'), 0) as dead,
          count(*) filter (where record_type = 'mortality') as dead_count,
          coalesce(sum(value) filter (where record_type = 'cull'), 0) as culled,
          count(*) filter (where record_type = 'cull') as cull_count,
          sum(value order by value) filter (where record_type = 'water') as water_l,
          count(*) filter (where record_type = 'water') as water_count,
          (array_agg(value order by occurred_at desc, record_id desc)
            filter (where record_type = 'head_count'))[1] as counted_head,
          count(*) filter (where record_type = 'head_count') as head_record_count
        from counted where value is not null
        group by kpi_date
        """,
        {**_arguments(batch, dates), "litres": msgspec.json.encode(barn.LITRES_OF).decode()},
    )


async def _climate(tx: db.Connection, batch: Batch, dates: Sequence[date]) -> list[dict[str, Any]]:
    """Hours of UTC with readings, those that were too hot, and water by meters, from rollups.

    An hour of a device with a reading outside the plausible range of its metric is covered, but its
    value counts for nothing: the mean is not to be believed.
    """
    return await db.fetch_dicts(
        tx,
        f"""
        with span as materialized ({_SPANS}), bucket as (
          select s.kpi_date, a.bucket_start_at, a.metric_type, a.count,
            case when u.units ? m.unit and (v.low < m.min_plausible or v.high > m.max_plausible)
              then null else v.mean end as value
          from span s join telemetry_agg a
            on a.tenant_id = %(tenant_id)s and a.farm_id = %(farm_id)s
            and a.barn_id = %(barn_id)s and a."window" = '1h'
            and a.bucket_start_at >= s.begin_at and a.bucket_start_at < s.end_at
          left join lateral (select %(units)s::jsonb -> a.metric_type as units) u on true
          left join metrics m on m.tenant_id = a.tenant_id and m.metric_type = a.metric_type
          cross join lateral (
            select
              case when u.units ? a.unit then 1::float8 when u.units ? m.unit
                then fn_jsonb_number(m.conversions -> a.unit -> 0) end as factor,
              case when u.units ? a.unit then 0::float8 when u.units ? m.unit
                then fn_jsonb_number(m.conversions -> a.unit -> 1) end as shift
          ) c
          cross join lateral (
            select a.avg_value * c.factor + c.shift as mean,
              least(a.min_value * c.factor + c.shift, a.max_value * c.factor + c.shift) as low,
              greatest(a.min_value * c.factor + c.shift, a.max_value * c.factor + c.shift) as high
          ) v
        ), summed as (
          select kpi_date, bucket_start_at, sum(count) as reading_count,
            sum(value * count order by value, count) filter (where metric_type = 'temperature')
              / sum(count) filter (where metric_type = 'temperature' and value is not null)
              as temperature,
            sum(value * count order by value, count) filter (where metric_type = 'humidity')
              / sum(count) filter (where metric_type = 'humidity' and value is not null)
              as humidity,
            sum(count) filter (where metric_type in ('temperature', 'humidity')
              and value is not null) as climate_count,
            sum(value * 60 order by value) filter (where metric_type = 'water.flow') as litres,
            sum(count) filter (where metric_type = 'water.flow' and value is not null)
              as metered_count
          from bucket group by kpi_date, bucket_start_at
        ), hour as (
          select *, 0.8::float8 * temperature
            + humidity / 100 * (temperature - 14.4::float8) + 46.4::float8 as thi
          from summed
        )
        select kpi_date, count(*)::int as covered_hours,
          sum(reading_count)::bigint as reading_count,
          case when count(thi) > 0 then (count(*) filter (where thi >= thi_limit))::int end
            as thi_hours,
          coalesce(sum(climate_count) filter (where thi is not null), 0)::bigint
            as climate_reading_count,
          sum(litres order by bucket_start_at) as metered_l,
          coalesce(sum(metered_count), 0)::bigint as metered_count
        from hour
          join unnest(%(dates)s::date[], %(limits)s::float8[]) as l(kpi_date, thi_limit)
            using (kpi_date)
        group by kpi_date
        """,  # noqa: S608 - our own text
        _arguments(batch, dates)
        | {
            "limits": [thi_limit(batch.species, batch.age(on)) for on in dates],
            "units": msgspec.json.encode(_UNITS).decode(),
        },
    )
