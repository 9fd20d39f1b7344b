"""SQL of Today: open alerts, how the devices are, today's weighings and records."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from farmiq.edge import alerts
from farmiq.plumbing import db

MAX_ALERTS = 100
# An alert of the tenant, or of the whole edge; a key of all tenants sees every one.
OWN = """
  (%(tenant)s::text is null or whole_edge or subject = %(tenant)s
    or starts_with(subject, %(tenant)s || '/'))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A device that is late, offline or in error, or was never heard."""

    device_id: str
    barn_id: str
    state: str
    last_seen_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What came since the local midnight."""

    weighings: int
    incomplete: int
    mean_kg: float | None
    dead: float
    feed_kg: float


async def open_alerts(
    connection: db.Connection, tenant_id: str | None
) -> tuple[list[dict[str, Any]], int]:
    """The most urgent of them, and how many there are."""
    values = {"tenant": tenant_id, "urgency": list(alerts.URGENCY), "limit": MAX_ALERTS}
    rows = await db.fetch_dicts(
        connection,
        f"""
        select alert_id, kind, subject, severity, message, seen_count, raised_at, last_seen_at,
          count(*) over ()::int as total
        from alerts where closed_at is null and {OWN}
        order by array_position(%(urgency)s::text[], severity), last_seen_at desc, alert_id desc
        limit %(limit)s
        """.encode(),  # noqa: S608 - the text is of this file
        values,
    )
    return rows, rows[0]["total"] if rows else 0


async def device_count(connection: db.Connection, tenant_id: str) -> int:
    count: int = await db.fetch_value(
        connection,
        "select count(*) from devices where tenant_id = %s and revoked_at is null",
        tenant_id,
    )
    return count


async def silent_devices(connection: db.Connection, tenant_id: str) -> list[Silent]:
    """Longest silent first; away for less than a heartbeat sends nobody to the barn."""
    return await db.fetch_as(
        connection,
        Silent,
        """
        select d.device_id, d.barn_id, coalesce(s.state, 'never seen') as state, s.last_seen_at
        from devices d left join device_state s using (tenant_id, device_id)
        where d.tenant_id = %s and d.revoked_at is null
          and coalesce(s.state, 'never seen') <> 'online'
          and coalesce(s.last_seen_at, '-infinity')
            < fn_now() - make_interval(secs => d.heartbeat_s)
        order by s.last_seen_at nulls last, d.device_id
        """,
        (tenant_id,),
    )


async def day(connection: db.Connection, tenant_id: str, *, begin: datetime, end: datetime) -> Day:
    (figures,) = await db.fetch_as(
        connection,
        Day,
        """
        select w.count::int as weighings, w.incomplete::int, w.mean_kg,
          coalesce((select sum(r.value_number) from barn_records r
            where r.tenant_id = %(tenant)s and r.record_type = 'mortality'
              and r.occurred_at >= %(begin)s and r.occurred_at < %(end)s
              and not exists (select from barn_records n
                where n.tenant_id = r.tenant_id and n.replaces = r.record_id
                  and (n.farm_id = r.farm_id or r.device_id is null))), 0) as dead,
          coalesce((select sum(i.quantity_kg) from feed_intakes i
            where i.tenant_id = %(tenant)s and i.occurred_at >= %(begin)s
              and i.occurred_at < %(end)s
              and not exists (select from posted_events p where p.tenant_id = i.tenant_id
                and p.event_type = 'feed.intake.recorded'
                and p.replaces = i.intake_id::text)), 0) as feed_kg
        from (
          select count(*), count(*) filter (where is_incomplete) as incomplete,
            avg(final_weight_kg) filter (where status = 'finalized') as mean_kg
          from weight_sessions
          where tenant_id = %(tenant)s and start_at >= %(begin)s and start_at < %(end)s) w
        """,
        {"tenant": tenant_id, "begin": begin, "end": end},
    )
    return figures
