"""The console's SQL about sites, with the person's rights (row level security).

Actions of people are database functions that check the rights again.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from uuid import UUID

from psycopg.rows import class_row

from farmiq.cloud.console.sites import strips
from farmiq.cloud.console.sites.day import Alert, WakeImage
from farmiq.cloud.console.sites.images import Image
from farmiq.cloud.console.sites.strips import GRACE, Camera, Stay, Wake
from farmiq.cloud.console.sites.view import DAYS, Day, Site
from farmiq.plumbing import db

MAX_ALERTS = 50

_SITE = """
select s.site_id, s.site_name, s.timezone, s.is_active, p.program_name,
  coalesce(t.session_date, (fn_now() at time zone s.timezone)::date) as today,
  coalesce(t.timezone, s.timezone) as zone_today, coalesce(d.cameras, 0) as cameras, d.last_seen_at
from sites s
join pilot_programs p on p.program_id = s.program_id
left join (
  select site_id, count(*) as cameras, max(last_seen_at) as last_seen_at
  from devices where is_active group by site_id) d on d.site_id = s.site_id
left join site_device_sessions t on t.session_id = fn_session_at(s.site_id, fn_now())
"""
_DAY = """
select d.session_id, d.site_id, d.session_date, d.timezone, d.expected_wake_count as expected,
  d.completed_wake_count as completed, d.failed_wake_count as failed, d.extra_wake_count as extra,
  d.status, d.opened_at, d.config_changed_flag as config_changed, d.late_updates, d.locked_at
from site_device_sessions d join sites s on s.site_id = d.site_id
"""
_CAMERA = """
select d.device_id, d.device_name, d.wake_schedule_cron, d.is_active, d.firmware, d.last_seen_at,
  d.battery_voltage, d.wifi_rssi, d.pending_count,
  coalesce(d.site_id = %(site_id)s, true) as is_here, a.assigned_at as here_since,
  (select count(*) from expected_wakes w
    join site_device_sessions s on s.session_id = w.session_id and s.site_id = d.site_id
    where w.device_id = d.device_id and w.expected_at > greatest(d.last_seen_at, a.assigned_at)
      and w.expected_at < fn_now() - %(grace)s) as missed
from devices d
left join device_assignments a on a.device_id = d.device_id and a.ended_at is null
"""


async def sites(connection: db.Connection) -> list[Site]:
    return await db.fetch_as(connection, Site, _SITE)


async def site(connection: db.Connection, site_id: UUID) -> Site | None:
    rows = await db.fetch_as(connection, Site, f"{_SITE} where s.site_id = %s", (site_id,))
    return rows[0] if rows else None


async def last_days(connection: db.Connection) -> list[Day]:
    """Each site's days of the last two weeks, by its own today."""
    return await db.fetch_as(
        connection,
        Day,
        f"{_DAY} where d.session_date > (fn_now() at time zone s.timezone)::date - %s",
        (DAYS,),
    )


async def day(connection: db.Connection, site_id: UUID, at: date) -> Day | None:
    rows = await db.fetch_as(
        connection, Day, f"{_DAY} where d.site_id = %s and d.session_date = %s", (site_id, at)
    )
    return rows[0] if rows else None


async def wakes(connection: db.Connection, session_ids: Sequence[UUID]) -> list[Wake]:
    """The expected wakes of these days with their results, and extra wakes; earliest first."""
    async with connection.cursor(row_factory=class_row(Wake), binary=True) as cursor:
        await cursor.execute(
            """
            select coalesce(e.session_id, p.site_device_session_id) as session_id,
              coalesce(e.device_id, p.device_id) as device_id,
              coalesce(p.captured_at, e.expected_at) as at, e.expected_at, p.image_id,
              p.payload_status as status, p.received_at, p.overage_reason,
              coalesce(p.clock_suspect, false) as clock_suspect
            from (select * from expected_wakes where session_id = any(%(sessions)s)) e
            full join (
              select * from device_wake_payloads where site_device_session_id = any(%(sessions)s)) p
              on p.site_device_session_id = e.session_id and p.device_id = e.device_id
                and p.wake_window_index = e.wake_window_index and not p.overage_flag
            order by at limit %(limit)s
            """,
            {"sessions": list(session_ids), "limit": strips.MAX_WAKES},
        )
        return await cursor.fetchall()


async def stays(connection: db.Connection, wanted: Sequence[UUID]) -> list[Stay]:
    """At which sites these cameras were, and when."""
    return await db.fetch_as(
        connection,
        Stay,
        "select device_id, site_id, assigned_at, ended_at from device_assignments "
        "where device_id = any(%s)",
        (list(wanted),),
    )


async def sites_of(connection: db.Connection, session_ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """The site of each of these days."""
    rows = await db.fetch_all(
        connection,
        "select session_id, site_id from site_device_sessions where session_id = any(%s)",
        list(session_ids),
    )
    return dict(rows)


async def images(connection: db.Connection, image_ids: Sequence[UUID]) -> dict[UUID, WakeImage]:
    """By their ids and not in a join: so the policy is evaluated once for all of them."""
    async with connection.cursor(row_factory=class_row(WakeImage), binary=True) as cursor:
        await cursor.execute(
            """
            select image_id, image_name, error_code, error_message, retry_count,
              resend_requested_at
            from device_images where image_id = any(%s)
            """,
            (list(image_ids),),
        )
        by_id = {image.image_id: image for image in await cursor.fetchall()}
    for image_id, quality, reason in await db.fetch_all(
        connection,
        """
        select image_id, quality, quality_reason from petri_observations
        where image_id = any(%s) and quality <> 'ok'
        """,
        list(by_id),
    ):
        by_id[image_id] = replace(by_id[image_id], quality=quality, quality_reason=reason)
    return by_id


async def cameras(
    connection: db.Connection, site_id: UUID | None, wanted: Sequence[UUID]
) -> list[Camera]:
    """The cameras that are at the site now, and the wanted ones; by name."""
    return await db.fetch_as(
        connection,
        Camera,
        f"{_CAMERA} where d.site_id = %(site_id)s or d.device_id = any(%(wanted)s) "
        "order by lower(d.device_name), d.device_id",
        {"site_id": site_id, "wanted": list(wanted), "grace": GRACE},
    )


async def alerts(connection: db.Connection, session: Day) -> list[Alert]:
    return await db.fetch_as(
        connection,
        Alert,
        """
        select a.alert_id, d.device_name, a.message
        from device_alerts a left join devices d on d.device_id = a.device_id
        where a.resolved_at is null and a.alert_date = %s and a.site_id = %s
        order by a.created_at desc limit %s
        """,
        (session.session_date, session.site_id, MAX_ALERTS),
    )


async def image(connection: db.Connection, image_id: UUID) -> Image | None:
    """None if the company has no such image."""
    rows = await db.fetch_as(
        connection,
        Image,
        """
        select i.image_id, i.device_id, d.device_name, i.image_name, i.captured_at, i.status,
          i.received_at, coalesce(o.size_bytes, i.image_size) as image_size, i.error_message,
          o.quality, o.quality_reason, o.width_px, o.height_px, o.sha256, p.site_id,
          s.site_name, s.timezone, n.session_date
        from device_images i
        join devices d on d.device_id = i.device_id
        left join petri_observations o on o.image_id = i.image_id
        left join device_wake_payloads p on p.image_id = i.image_id
        left join sites s on s.site_id = p.site_id
        left join site_device_sessions n on n.session_id = p.site_device_session_id
        where i.image_id = %s
        """,
        (image_id,),
    )
    return rows[0] if rows else None


async def images_beside(connection: db.Connection, image: Image) -> tuple[UUID | None, ...]:
    """The images that the same camera captured before and after this one."""
    cursor = await connection.execute(
        """
        select
          (select image_id from device_images
           where company_id = get_active_company_id() and device_id = %(device_id)s
             and (captured_at, image_id) < (%(at)s, %(image_id)s)
           order by captured_at desc, image_id desc limit 1),
          (select image_id from device_images
           where company_id = get_active_company_id() and device_id = %(device_id)s
             and (captured_at, image_id) > (%(at)s, %(image_id)s)
           order by captured_at, image_id limit 1)
        """,
        {"device_id": image.device_id, "at": image.captured_at, "image_id": image.image_id},
    )
    return (await cursor.fetchone()) or (None, None)


async def place_of(connection: db.Connection, image_id: UUID) -> tuple[UUID, UUID, date] | None:
    """The site, the camera and the day that an image belongs to."""
    rows = await db.fetch_all(
        connection,
        """
        select p.site_id, p.device_id, s.session_date
        from device_wake_payloads p
        join site_device_sessions s on s.session_id = p.site_device_session_id
        where p.image_id = %s
        """,
        image_id,
    )
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


async def request_resend(connection: db.Connection, image_id: UUID) -> None:
    await connection.execute("select fn_request_resend(image_id => %s)", (image_id,))
