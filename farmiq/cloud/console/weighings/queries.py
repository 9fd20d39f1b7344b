"""The console's SQL about weighings, with the person's rights (row level security)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from farmiq.cloud.console.weighings.view import Event, Weighing
from farmiq.farm import sessions
from farmiq.messages import weighvision as words
from farmiq.plumbing import db
from farmiq.ui.estimates import Estimate

# A page shows at most so many of a day; the API has all of them.
MAX_A_DAY = 20_000
MAX_EVENTS = 1000

_STATE = f"case when {sessions.OVERDUE_SQL} then 'INCOMPLETE' else w.status end"
# The batch that its station named, else the one that was in the barn on that local day.
_BATCH = """
case when w.clock_suspect then w.batch_id
  else fn_batch_of(w.tenant_id, w.farm_id, w.barn_id, w.batch_id, w.batch_derived, w.start_at) end
"""
_COLUMNS = f"""
  w.session_id, w.farm_id, w.barn_id, w.device_id, {_STATE} as state, w.status, w.start_at,
  w.end_at, w.initial_weight_kg, w.final_weight_kg, w.image_count, w.media_ids, w.missing,
  w.cancel_reason, w.received_at, w.station_id, w.clock_suspect,
  coalesce(f.timezone, %(zone)s) as timezone, f.name as farm_name, b.name as barn_name
"""
# A weighing is of the day of its farm's clock; of a farm that nobody registered, of the company's.
_FROM = """
from (select fn_now() as now) c, weight_sessions w
left join farms f on f.farm_id = w.farm_id
left join barns b on b.farm_id = w.farm_id and b.barn_id = w.barn_id
"""
_ON_DAY = """
  (w.start_at at time zone coalesce(f.timezone, %(zone)s))::date = %(day)s::date
  and w.start_at > (%(day)s::date - 1)::timestamp at time zone 'UTC'
  and w.start_at < (%(day)s::date + 2)::timestamp at time zone 'UTC'
"""
_WEIGHING = f"select {_COLUMNS}, {_BATCH} as batch_id {_FROM} "
# A day's page does not show batches, and finding them for thousands of rows takes long.
_OF_A_DAY = f"select {_COLUMNS}, w.batch_id {_FROM} "


async def day(
    connection: db.Connection, *, day: date, zone: str, patience_s: float
) -> list[Weighing]:
    """The weighings of a day, newest first; with the batch only if their station named it."""
    rows = await db.fetch_dicts(
        connection,
        f"{_OF_A_DAY} where {_ON_DAY} order by w.start_at desc, w.session_id desc limit %(limit)s",
        {"day": day, "zone": zone, "patience_s": patience_s, "limit": MAX_A_DAY},
    )
    return list(map(_weighing, rows))


async def find(
    connection: db.Connection, session_id: UUID, *, zone: str, patience_s: float
) -> Weighing | None:
    rows = await db.fetch_dicts(
        connection,
        _WEIGHING + "where w.session_id = %(session_id)s",
        {"session_id": session_id, "zone": zone, "patience_s": patience_s},
    )
    return _weighing(rows[0]) if rows else None


async def page(
    connection: db.Connection, filters: Mapping[str, Any], *, zone: str, patience_s: float
) -> list[Weighing]:
    """A page for the API, newest first; `filters` is a page of a WeighingFilter."""
    rows = await db.fetch_dicts(
        connection,
        f"""
        {_WEIGHING}
        where (%(day)s::date is null or {_ON_DAY})
          and (%(farm)s::text is null or w.farm_id = %(farm)s)
          and (%(barn)s::text is null or w.barn_id = %(barn)s)
          and (%(device)s::text is null or w.device_id = %(device)s)
          and (%(batch)s::text is null or {_BATCH} = %(batch)s)
          and (%(state)s::text is null or {_STATE} = %(state)s)
          and (%(begin)s::timestamptz is null or w.start_at >= %(begin)s)
          and (%(end)s::timestamptz is null or w.start_at < %(end)s)
          and (%(after_at)s::timestamptz is null
            or (w.start_at, w.session_id) < (%(after_at)s, %(after_id)s))
        order by w.start_at desc, w.session_id desc limit %(limit)s
        """,
        {**filters, "zone": zone, "patience_s": patience_s},
    )
    return list(map(_weighing, rows))


async def events(connection: db.Connection, session_id: UUID) -> list[Event]:
    """The events of a session, in the order in which they happened."""
    return await db.fetch_as(
        connection,
        Event,
        """
        select event_id, event_type, occurred_at, stored_at, media_id, case event_type
            when %s then initial_weight_kg when %s then final_weight_kg else weight_kg
          end as weight_kg
        from weighvision_events where session_id = %s
        order by occurred_at, event_id limit %s
        """,
        (words.SESSION_CREATED, words.SESSION_FINALIZED, session_id, MAX_EVENTS),
    )


async def here(connection: db.Connection, media_ids: Sequence[UUID]) -> set[UUID]:
    """Which of these images the cloud has."""
    rows = await db.fetch_all(
        connection,
        "select media_id from media_objects where media_id = any(%s) and stored_at is not null",
        list(media_ids),
    )
    return {row[0] for row in rows}


@dataclass(frozen=True, slots=True)
class Beside:
    """The weighings before and after one on its day, and which of how many it is."""

    before: UUID | None
    after: UUID | None
    number: int
    total: int


async def beside(connection: db.Connection, weighing: Weighing, *, day: date, zone: str) -> Beside:
    rows = await db.fetch_as(
        connection,
        Beside,
        f"""
        with of_day as (
          select w.session_id, row_number() over (order by w.start_at, w.session_id) as number,
            count(*) over () as total,
            lag(w.session_id) over (order by w.start_at, w.session_id) as before,
            lead(w.session_id) over (order by w.start_at, w.session_id) as after
          {_FROM} where {_ON_DAY})
        select before, after, number, total from of_day where session_id = %(id)s
        """,  # noqa: S608 - our own words
        {"day": day, "zone": zone, "id": weighing.session_id},
    )
    return rows[0] if rows else Beside(None, None, 1, 1)


async def estimate(connection: db.Connection, weighing: Weighing) -> Estimate | None:
    """What a model made of its images; None until an edge has looked at them.

    With how the station's last estimates of a month, at most 200, compare with its scale.
    """
    rows = await db.fetch_as(
        connection,
        Estimate,
        """
        select e.inference_result_id, e.predicted_weight_kg, e.confidence, e.model_version,
          (e.payload ->> 'low_kg')::double precision as low_kg,
          (e.payload ->> 'high_kg')::double precision as high_kg, e.payload ->> 'reason' as reason,
          coalesce((e.payload ->> 'is_shadow')::boolean, false) as is_shadow,
          (e.payload ->> 'n_train')::bigint as n_train,
          (e.payload ->> 'cv_mape')::double precision as cv_mape,
          (e.payload ->> 'baseline_mape')::double precision as baseline_mape,
          running.sessions, running.mape, running.coverage
        from inference_events e, lateral (
          select count(*) as sessions, avg(abs(o.kg / w.final_weight_kg - 1)) as mape,
            avg((w.final_weight_kg between o.low_kg and o.high_kg)::int)::float8 as coverage
          from (
            select p.tenant_id, p.session_id, p.predicted_weight_kg as kg,
              (p.payload ->> 'low_kg')::double precision as low_kg,
              (p.payload ->> 'high_kg')::double precision as high_kg
            from inference_events p
            where p.tenant_id = e.tenant_id and p.device_id = e.device_id
              and p.predicted_weight_kg is not null and p.occurred_at <= e.occurred_at
              and p.occurred_at > e.occurred_at - interval '30 days'
            order by p.occurred_at desc limit 200) o
            join weight_sessions w on w.tenant_id = o.tenant_id and w.session_id = o.session_id
              and w.status = 'finalized' and w.final_weight_kg > 0) running
        where e.session_id = %s
        order by e.occurred_at desc limit 1
        """,
        (weighing.session_id,),
    )
    return rows[0] if rows else None


async def targets(connection: db.Connection, day: date) -> dict[tuple[str, str], float]:
    """The mean weight that the breed standard expects on this day, by farm and barn."""
    rows = await db.fetch_all(
        connection,
        """
        select farm_id, barn_id, max(expected_value) from kpi_daily
        where kpi_date = %s and kpi_type = 'weight_mean' and expected_value is not null
        group by 1, 2
        """,
        day,
    )
    return {(farm_id, barn_id): target for farm_id, barn_id, target in rows}


async def last_at(connection: db.Connection) -> datetime | None:
    """When the newest weighing was; None if there never was one."""
    newest: datetime | None = await db.fetch_value(
        connection, "select max(start_at) from weight_sessions"
    )
    return newest


def pictures(weighings: Collection[Weighing]) -> list[UUID]:
    return [media_id for weighing in weighings for media_id in weighing.media_ids]


def _weighing(row: dict[str, Any]) -> Weighing:
    return Weighing(
        **{**row, "media_ids": tuple(row["media_ids"]), "missing": tuple(row["missing"])}
    )
