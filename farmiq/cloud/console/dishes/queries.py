"""SQL of dishes, with the person's rights (row level security)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from farmiq.cloud.console.dishes.view import Camera, Measured
from farmiq.cloud.console.sites import queries as site_queries
from farmiq.cloud.console.sites.view import Site
from farmiq.plumbing import db

MAX_CAMERAS = 60
MAX_MEASURED = 30_000
SPAN = timedelta(days=60)


class Frame(NamedTuple):
    company_id: UUID
    image_url: str


async def dishes(
    connection: db.Connection, site_id: UUID, *, now: datetime
) -> tuple[list[Camera], list[Measured]]:
    """The cameras at a site, and what was measured of their newest dishes."""
    known = await cameras(connection, site_id)
    series_ids = [camera.series_id for camera in known if camera.series_id]
    return known, await measured(connection, series_ids, now=now)


async def site(connection: db.Connection, site_id: UUID) -> Site | None:
    return await site_queries.site(connection, site_id)


async def cameras(connection: db.Connection, site_id: UUID) -> list[Camera]:
    """The cameras at a site with their newest dish, and why the last image shows none."""
    return await db.fetch_as(
        connection,
        Camera,
        """
        select d.device_id, d.device_name, d.x_position, d.y_position, s.series_id, s.started_at,
          s.ended_at, s.reference_image_id,
          (select o.dish_problem from petri_observations o
           where o.company_id = get_active_company_id() and o.device_id = d.device_id
             and o.site_id = d.site_id and o.quality is not null
           order by o.observed_at desc limit 1) as problem
        from devices d
        left join lateral (
          select * from dish_series s where s.company_id = d.company_id
            and s.device_id = d.device_id and s.site_id = d.site_id
          order by s.started_at desc limit 1) s on true
        where d.site_id = %s and d.is_active
        order by lower(d.device_name), d.device_id limit %s
        """,
        (site_id, MAX_CAMERAS),
    )


async def measured(
    connection: db.Connection, series_ids: Sequence[UUID], *, now: datetime
) -> list[Measured]:
    """What was measured of these dishes in the last two months, earliest first."""
    return await db.fetch_as(
        connection,
        Measured,
        """
        select dish_series_id as series_id, image_id, observed_at, covered_change, covered_quality
        from petri_observations
        where dish_series_id = any(%s) and covered_change is not null and observed_at > %s
        order by observed_at limit %s
        """,
        (list(series_ids), now - SPAN, MAX_MEASURED),
    )


async def frames(connection: db.Connection, site_id: UUID, device_id: UUID) -> list[Frame]:
    """The readable images of a camera's newest dish, in order."""
    rows = await db.fetch_all(
        connection,
        """
        select i.company_id, i.image_url from petri_observations o
        join device_images i on i.image_id = o.image_id
        where o.dish_series_id = (
            select series_id from dish_series where company_id = get_active_company_id()
              and site_id = %s and device_id = %s
            order by started_at desc limit 1)
          and o.quality not in ('unreadable', 'missing')
        order by o.observed_at, o.image_id limit %s
        """,
        site_id,
        device_id,
        MAX_MEASURED,
    )
    return [Frame(*row) for row in rows]


async def start_dish(connection: db.Connection, device_id: UUID) -> None:
    await connection.execute("select fn_start_dish(device_id => %s)", (device_id,))
