"""Whose a MAC address is, and which cameras nobody registered.

Every company may register an address and learns nothing of others that did. A registration is
proven when the camera sends while that registration is in charge; the others get nothing.
"""

from typing import Any

from farmiq.plumbing import db

UNKNOWN_DAYS = 1
MAX_UNKNOWN = 500

# Of the rows `d` of devices: the one whose camera a MAC address is. That is the proven one; else
# the one that was given the login; else the only one.
IN_CHARGE = """
  d.is_active and (
    d.proven_at is not null
    or not exists (
      select from devices o where o.mac = d.mac and o.is_active and o.device_id <> d.device_id)
    or (exists (
        select from camera_logins l where l.device_id = d.device_id and l.revoked_at is null)
      and not exists (
        select from devices o where o.mac = d.mac and o.is_active and o.proven_at is not null)))
"""
_UNKNOWN = f"""
  from camera_quarantine q where q.kind = 'unknown' and not exists (
    select from devices d where d.mac = q.mac and {IN_CHARGE})
"""


async def unknown_cameras(
    connection: db.Connection, *, limit: int = MAX_UNKNOWN
) -> list[dict[str, Any]]:
    """Cameras that nobody registered, by MAC address, heard last first.

    They belong to no company: only who runs the platform may see them.
    """
    return await db.fetch_dicts(
        connection,
        f"""
        select q.mac, count(*) as contents, sum(q.received_count)::bigint as messages,
          min(q.first_received_at) as first_received_at,
          max(q.last_received_at) as last_received_at,
          (array_agg(q.topic order by q.last_received_at desc))[1] as topic
        {_UNKNOWN} group by q.mac order by max(q.last_received_at) desc, q.mac limit %s
        """,
        (limit,),
    )


async def count_unknown(connection: db.Connection) -> int:
    """How many were heard within a day."""
    count: int = await db.fetch_value(
        connection,
        f"select count(distinct q.mac) {_UNKNOWN} "
        "and q.last_received_at > (select fn_now()) - %s * interval '1 day'",
        UNKNOWN_DAYS,
    )
    return count
