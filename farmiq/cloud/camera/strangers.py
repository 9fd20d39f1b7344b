"""Cameras that nobody registered: who was heard of late. They belong to no company.

Only who runs the platform can say whose they are: `farmiq camera-gateway quarantine ls --unknown`,
a route for super admins, a metric with one alert for all of them.
"""

from typing import Any

from psycopg.rows import dict_row

from farmiq.cloud.camera import claims
from farmiq.plumbing import db

DAYS = 1
MOST = 500


async def ls(connection: db.Connection, *, most: int = MOST) -> list[dict[str, Any]]:
    """By MAC address, heard last first: how often and since when. As the service."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            f"""
            select q.mac, count(*) as contents, sum(q.received_count)::bigint as messages,
              min(q.first_received_at) as first_received_at,
              max(q.last_received_at) as last_received_at,
              (array_agg(q.topic order by q.last_received_at desc))[1] as topic
            from camera_quarantine q
            where q.kind = 'unknown' and not exists (
              select from devices d where d.mac = q.mac and {claims.IN_CHARGE})
            group by q.mac order by max(q.last_received_at) desc, q.mac limit %s
            """.encode(),  # noqa: S608 - the text is ours
            (most,),
        )
        return await cursor.fetchall()


async def count(connection: db.Connection) -> int:
    """How many were heard within a day and are not registered."""
    found: int = await db.fetch_value(
        connection,
        f"""
        select count(distinct q.mac) from camera_quarantine q
        where q.kind = 'unknown'
          and q.last_received_at > (select fn_now()) - %s * interval '1 day'
          and not exists (select from devices d where d.mac = q.mac and {claims.IN_CHARGE})
        """.encode(),  # noqa: S608 - the text is ours
        DAYS,
    )
    return found
