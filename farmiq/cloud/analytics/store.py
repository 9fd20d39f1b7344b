"""Analytics' SQL: marks of days, the facts of a day, and figures."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.cloud.analytics.rules import Batch, Day, Figure, StandardRow, thi_limit
from farmiq.messages import barn, feed
from farmiq.messages.kpi import KpiType
from farmiq.plumbing import db

# Units in which telemetry is taken as it is; others as the metric's conversions say.
_UNITS = {"temperature": ["°C", "C"], "humidity": ["%"], "water.flow": ["l/min", "L/min"]}
_FACTS = tuple(field.name for field in fields(Day))
# How long a batch is looked at beyond today: clocks of devices may be a little ahead.
DAYS_AHEAD = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where and when something happened: it touches the batch it names and the barn's batch."""

    tenant_id: str
    farm_id: str | None
    barn_id: str | None
    batch_id: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Pending:
    """An event whose row another service stores; of an hour of telemetry, its bucket."""

    tenant_id: str
    event_id: UUID
    family: str
    farm_id: str | None
    barn_id: str | None
    device_id: str | None = None
    metric_type: str | None = None
    bucket_start_at: datetime | None = None
    reading_count: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Days of a batch; without `last_date` all from the first on."""

    first_date: date
    last_date: date | None
    is_figures: bool


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


# --- marks


async def mark_places(tx: db.Connection, places: Collection[Place], *, early: bool = False) -> None:
    """Mark the local dates of these moments for the batches that they touch.

    A moment of no registered batch marks nothing: a batch that is registered later marks all its
    days (fn_batches_mark_days). `early`: the reading's hour is rolled up in a few seconds, so the
    mark is due at the next half minute after that, once for all readings until then.
    """
    if not places:
        return
    await tx.execute(
        """
        with place as (
          select distinct * from unnest(%s::text[], %s::text[], %s::text[], %s::text[],
            %s::timestamptz[]) as p(tenant_id, farm_id, barn_id, batch_id, at)
        ), touched as (
          select b.tenant_id, b.batch_id, b.farm_id, b.placed_on, b.closed_on, p.at
          from place p join batches b on b.tenant_id = p.tenant_id and b.batch_id = p.batch_id
          union
          select b.tenant_id, b.batch_id, b.farm_id, b.placed_on, b.closed_on, p.at
          from place p join batches b
            on b.tenant_id = p.tenant_id and b.farm_id = p.farm_id and b.barn_id = p.barn_id
            and b.placed_on <= (p.at + interval '1 day')::date
            and coalesce(b.closed_on, 'infinity') >= (p.at - interval '1 day')::date
        ), dated as (
          select distinct t.tenant_id, t.batch_id, fn_local_date(f.timezone, t.at) as kpi_date,
            t.placed_on, t.closed_on
          from touched t join farms f on f.tenant_id = t.tenant_id and f.farm_id = t.farm_id
        ), due as materialized (
          select case when %s then date_bin('30 seconds', now() + interval '45 seconds', 'epoch')
            else now() end as due_at
        )
        insert into analytics_dirty_days (tenant_id, batch_id, first_date, last_date, due_at)
        select d.tenant_id, d.batch_id, d.kpi_date, d.kpi_date, due.due_at
        from dated d cross join due
        where d.kpi_date between d.placed_on and coalesce(d.closed_on, 'infinity')
          -- Nobody takes a mark before it is due, so one of the same time is as good as this.
          and not exists (
            select from analytics_dirty_days m where m.tenant_id = d.tenant_id
              and m.batch_id = d.batch_id and m.first_date = d.kpi_date
              and m.last_date = d.kpi_date and m.due_at = due.due_at and due.due_at > now())
        """,
        (*db.columns(places, "tenant_id", "farm_id", "barn_id", "batch_id", "at"), early),
    )


async def mark_dates(tx: db.Connection, batch: Batch, dates: Iterable[date]) -> None:
    """Mark the facts of these dates of a batch."""
    await tx.execute(
        """
        insert into analytics_dirty_days (tenant_id, batch_id, first_date, last_date)
        select %s, %s, d, d from unnest(%s::date[]) d
        """,
        (batch.tenant_id, batch.batch_id, [*dates]),
    )


async def mark_figures(tx: db.Connection, batch: Batch, *, first: date) -> None:
    """Mark the figures of a batch from a date on."""
    await tx.execute(
        """
        insert into analytics_dirty_days (tenant_id, batch_id, first_date, is_figures)
        values (%s, %s, %s, true)
        """,
        (batch.tenant_id, batch.batch_id, first),
    )


async def due_batches(tx: db.Connection, *, limit: int) -> list[tuple[str, str]]:
    """(tenant, batch) with a mark that is due, longest due first."""
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, batch_id from (
          select tenant_id, batch_id, due_at from analytics_dirty_days
          where due_at <= now() order by due_at limit %s) due
        group by tenant_id, batch_id order by min(due_at)
        """,
        limit,
    )
    return [(row[0], row[1]) for row in rows]


async def behind_s(tx: db.Connection) -> float:
    """How long the mark that is due longest has been."""
    return float(
        await db.fetch_value(
            tx,
            """
            select greatest(0, coalesce(extract(epoch from now() - min(due_at)), 0))
            from analytics_dirty_days
            """,
        )
    )


async def lock_batch(tx: db.Connection, tenant_id: str, batch_id: str) -> bool:
    """Be the only one that computes this batch until the commit; False if another one does."""
    return bool(
        await db.fetch_value(
            tx,
            "select pg_try_advisory_xact_lock(hashtextextended(%s || chr(31) || %s, 7501))",
            tenant_id,
            batch_id,
        )
    )


async def take_marks(tx: db.Connection, tenant_id: str, batch_id: str) -> list[Mark]:
    return await db.fetch_as(
        tx,
        Mark,
        """
        delete from analytics_dirty_days
        where tenant_id = %s and batch_id = %s and due_at <= now()
        returning first_date, last_date, is_figures
        """,
        (tenant_id, batch_id),
    )


async def put_off(tx: db.Connection, tenant_id: str, batch_id: str, *, delay_s: float) -> None:
    """Marks of a batch that cannot be computed wait, so that others are."""
    await tx.execute(
        """
        update analytics_dirty_days set due_at = now() + %s * interval '1 second'
        where tenant_id = %s and batch_id = %s and due_at <= now()
        """,
        (delay_s, tenant_id, batch_id),
    )


# --- events that are not stored yet


async def stored_events(tx: db.Connection, events: Collection[Pending]) -> set[tuple[str, UUID]]:
    """Which of these events their own services have stored."""
    rows = await db.fetch_all(
        tx,
        """
        with e as materialized (
          select * from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[],
            %s::timestamptz[], %s::bigint[]) as e(tenant_id, event_id, family, device_id,
              metric_type, bucket_start_at, reading_count)
        )
        select e.tenant_id, e.event_id from e join weighvision_events s
          on s.tenant_id = e.tenant_id and s.event_id = e.event_id where e.family = 'weighvision'
        union all
        select e.tenant_id, e.event_id from e join feed_events s
          on s.tenant_id = e.tenant_id and s.event_id = e.event_id where e.family = 'feed'
        union all
        select e.tenant_id, e.event_id from e join barn_events s
          on s.tenant_id = e.tenant_id and s.event_id = e.event_id where e.family = 'barn'
        union all
        select e.tenant_id, e.event_id from e join telemetry_agg a
          on a.tenant_id = e.tenant_id and a.device_id = e.device_id
          and a.metric_type = e.metric_type and a."window" = '1h'
          and a.bucket_start_at = e.bucket_start_at and a.count >= e.reading_count
        where e.family = 'telemetry'
        """,
        *db.columns(
            events, "tenant_id", "event_id", "family", "device_id", "metric_type",
            "bucket_start_at", "reading_count",
        ),
    )  # fmt: skip
    return {(row[0], row[1]) for row in rows}


async def places_of(tx: db.Connection, events: Collection[Pending]) -> list[Place]:
    """Where and when stored events count: their own, and those of what they replace.

    A session counts on the day of its first event for the batch that its created event names, and
    either may have come late: all moments of the session count, each with its batch.
    """
    rows = await db.fetch_all(
        tx,
        """
        with e as materialized (
          select * from unnest(%s::text[], %s::uuid[], %s::text[])
            as e(tenant_id, event_id, family)
        ), session as (
          select distinct s.tenant_id, s.session_id from e join weighvision_events s
            on s.tenant_id = e.tenant_id and s.event_id = e.event_id
          where e.family = 'weighvision' and s.session_id is not null
        ), fed as (
          select f.* from e join feed_events f
            on f.tenant_id = e.tenant_id and f.event_id = e.event_id where e.family = 'feed'
        ), noted as (
          select n.* from e join barn_events n
            on n.tenant_id = e.tenant_id and n.event_id = e.event_id where e.family = 'barn'
        )
        select distinct w.tenant_id, w.farm_id, w.barn_id,
          max(w.batch_id) over (partition by w.tenant_id, w.session_id),
          date_bin('15 minutes', w.occurred_at, 'epoch')
        from session s join weighvision_events w
          on w.tenant_id = s.tenant_id and w.session_id = s.session_id
        union
        select f.tenant_id, f.farm_id, f.barn_id, f.payload ->> 'batch_id', f.occurred_at from fed f
        union
        select o.tenant_id, o.farm_id, o.barn_id, o.payload ->> 'batch_id', o.occurred_at
        from fed f join feed_events o
          on o.tenant_id = f.tenant_id and o.event_id = fn_replaced_event(f.payload)
        union
        select n.tenant_id, n.farm_id, n.barn_id, n.payload ->> 'batch_id', n.occurred_at
        from noted n
        union
        select o.tenant_id, o.farm_id, o.barn_id, o.payload ->> 'batch_id', o.occurred_at
        from noted n join barn_events o
          on o.tenant_id = n.tenant_id and o.record_id = n.payload ->> 'replaces'
        """,
        *db.columns(events, "tenant_id", "event_id", "family"),
    )
    hours = [
        Place(event.tenant_id, event.farm_id, event.barn_id, None, event.bucket_start_at)
        for event in events
        if event.bucket_start_at is not None
    ]
    return [*(Place(*row) for row in rows), *hours]


async def add_pending(tx: db.Connection, events: Collection[Pending]) -> None:
    await tx.execute(
        """
        insert into analytics_pending (tenant_id, event_id, family, farm_id, barn_id, device_id,
          metric_type, bucket_start_at, reading_count)
        select * from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[],
          %s::text[], %s::text[], %s::timestamptz[], %s::bigint[])
        order by 1, 2
        on conflict on constraint analytics_pending_pkey do nothing
        """,
        db.columns(
            events, "tenant_id", "event_id", "family", "farm_id", "barn_id", "device_id",
            "metric_type", "bucket_start_at", "reading_count",
        ),
    )  # fmt: skip


async def due_pending(tx: db.Connection, *, limit: int) -> list[Pending]:
    """Events to look for again, locked; each is looked for less and less often."""
    return await db.fetch_as(
        tx,
        Pending,
        """
        with due as (
          select tenant_id, event_id from analytics_pending where next_look_at <= now()
          order by next_look_at limit %s for update skip locked
        )
        update analytics_pending p set attempts = p.attempts + 1,
          next_look_at = now() + least(300, 0.5 * 2 ^ least(p.attempts, 10)) * interval '1 second'
        from due where p.tenant_id = due.tenant_id and p.event_id = due.event_id
        returning p.tenant_id, p.event_id, p.family, p.farm_id, p.barn_id, p.device_id,
          p.metric_type, p.bucket_start_at, p.reading_count
        """,
        (limit,),
    )


async def remove_pending(tx: db.Connection, events: Collection[tuple[str, UUID]]) -> None:
    await tx.execute(
        """
        delete from analytics_pending p
        using unnest(%s::text[], %s::uuid[]) as e(tenant_id, event_id)
        where p.tenant_id = e.tenant_id and p.event_id = e.event_id
        """,
        ([tenant_id for tenant_id, _ in events], [event_id for _, event_id in events]),
    )


# --- a batch and its days


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


async def standard(tx: db.Connection, batch: Batch) -> list[StandardRow]:
    """The standard of the batch's breed and sex, else that of both sexes together."""
    return await db.fetch_as(
        tx,
        StandardRow,
        """
        with of_breed as (
          select * from breed_standards
          where tenant_id = %(tenant_id)s and species = %(species)s and breed = %(breed)s
            and sex in (%(sex)s, 'mixed')
        )
        select age_days, weight_kg, daily_gain_g, feed_conversion, mortality_pct from of_breed
        where sex = case when exists (select from of_breed where sex = %(sex)s)
          then %(sex)s else 'mixed' end
        order by age_days
        """,
        {
            "tenant_id": batch.tenant_id,
            "species": batch.species,
            "breed": batch.breed,
            "sex": batch.sex,
        },
    )


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


async def facts(tx: db.Connection, batch: Batch, dates: Collection[date]) -> list[Day]:
    """The facts of these dates from the tables of events; days without any are left out."""
    wanted = [on for on in dates if batch.has(on)]
    if not wanted:
        return []
    by_date: dict[date, dict[str, Any]] = {on: {} for on in wanted}
    for read in (_hours, _weighings, _intakes, _records, _climate):
        for row in await read(tx, batch, wanted):
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
    """In the order of the weights, so that the same weighings always give the same sums."""
    return await db.fetch_dicts(
        tx,
        """
        with weighed as (
          select w.kpi_date, w.weight_kg, w.is_outlier
          from unnest(%(dates)s::date[]) d
            cross join lateral fn_batch_weighings(%(tenant_id)s, %(batch_id)s, d, d) w
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
            / count(*) filter (where not is_outlier) end as weight_uniformity_pct
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
            and e.barn_id = %(barn_id)s and e.batch_id is null
            and e.occurred_at >= s.begin_at and e.occurred_at < s.end_at
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
        f"""
        with span as materialized ({_SPANS}), offered as (
          select s.kpi_date, e.* from span s join counted_records e
            on e.tenant_id = %(tenant_id)s and e.batch_id = %(batch_id)s
            and e.occurred_at >= s.begin_at and e.occurred_at < s.end_at
          union all
          select s.kpi_date, e.* from span s join counted_records e
            on e.tenant_id = %(tenant_id)s and e.farm_id = %(farm_id)s
            and e.barn_id = %(barn_id)s and e.batch_id is null
            and e.occurred_at >= s.begin_at and e.occurred_at < s.end_at
        ), counted as (
          select *, case when record_type <> 'water' or unit is null then value_number
            else value_number * (%(litres)s::jsonb ->> unit)::float8 end as value
          from offered where not clock_suspect
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
        """,  # noqa: S608 - our own text
        {**_arguments(batch, dates), "litres": msgspec.json.encode(barn.LITRES_OF).decode()},
    )


async def _climate(tx: db.Connection, batch: Batch, dates: Sequence[date]) -> list[dict[str, Any]]:
    """Hours of UTC with readings, those that were too hot, and water by meters, from rollups."""
    return await db.fetch_dicts(
        tx,
        f"""
        with span as materialized ({_SPANS}), bucket as (
          select s.kpi_date, a.bucket_start_at, a.metric_type, a.count,
            case
              when u.units ? a.unit then a.avg_value
              when u.units ? m.unit then
                a.avg_value * fn_jsonb_number(m.conversions -> a.unit -> 0)
                  + fn_jsonb_number(m.conversions -> a.unit -> 1)
            end as value
          from span s join telemetry_agg a
            on a.tenant_id = %(tenant_id)s and a.farm_id = %(farm_id)s
            and a.barn_id = %(barn_id)s and a."window" = '1h'
            and a.bucket_start_at >= s.begin_at and a.bucket_start_at < s.end_at
          left join lateral (select %(units)s::jsonb -> a.metric_type as units) u on true
          left join metrics m on m.tenant_id = a.tenant_id and m.metric_type = a.metric_type
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
          case when count(thi) > 0 then (count(*) filter (where thi >= %(limit)s))::int end
            as thi_hours,
          coalesce(sum(climate_count) filter (where thi is not null), 0)::bigint
            as climate_reading_count,
          sum(litres order by bucket_start_at) as metered_l,
          coalesce(sum(metered_count), 0)::bigint as metered_count
        from hour group by kpi_date
        """,  # noqa: S608 - our own text
        _arguments(batch, dates)
        | {"limit": thi_limit(batch.species), "units": msgspec.json.encode(_UNITS).decode()},
    )


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


# --- figures


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
