"""What the console reads, always as the person who looks: row level security decides."""

from farmiq.cloud.console.readings import Choice, Company, Reading
from farmiq.cloud.console.sparkline import Point
from farmiq.plumbing import db

HISTORY = 30


async def company(connection: db.Connection, *, email: str) -> Company | None:
    """The company that the transaction looks at, for the person of this e-mail; None if gone."""
    rows = await db.fetch_all(
        connection, "select company_id, name, tenant_id, timezone from companies"
    )
    if not rows:
        return None
    company_id, name, tenant_id, timezone = rows[0]
    return Company(
        company_id=company_id, name=name, tenant_id=tenant_id, timezone=timezone, email=email
    )


async def choices(connection: db.Connection) -> list[Choice]:
    """The companies that the person may look at, by name."""
    rows = await db.fetch_all(connection, "select company_id, name from get_selectable_companies()")
    return [Choice(company_id=company_id, name=name) for company_id, name in rows]


async def latest(connection: db.Connection) -> list[Reading]:
    """The newest reading of every sensor with the last few before it, in one query."""
    # Binary: of 200 devices these are tens of thousands of numbers.
    cursor = await connection.cursor(binary=True).execute(
        """
        select l.farm_id, l.barn_id, l.device_id, l.metric_type, l.metric_value, l.unit,
          l.occurred_at, l.stored_at, l.reading_count, l.clock_suspect, h.instants, h.amounts
        from telemetry_latest l
        cross join lateral (
          select
            coalesce(array_agg(r.occurred_at order by r.occurred_at), '{}') as instants,
            coalesce(array_agg(r.metric_value order by r.occurred_at), '{}') as amounts
          from (
            select occurred_at, metric_value
            from telemetry_readings
            where tenant_id = l.tenant_id and device_id = l.device_id
              and metric_type = l.metric_type
            order by occurred_at desc
            limit %s
          ) r
        ) h
        """,
        (HISTORY,),
    )
    return [
        Reading(
            farm_id=farm_id,
            barn_id=barn_id,
            device_id=device_id,
            metric_type=metric_type,
            value=value,
            unit=unit,
            captured_at=captured_at,
            arrived_at=arrived_at,
            count=count,
            clock_suspect=clock_suspect,
            history=tuple(map(Point, instants, amounts)),
        )
        for (
            farm_id, barn_id, device_id, metric_type, value, unit,
            captured_at, arrived_at, count, clock_suspect, instants, amounts,
        ) in await cursor.fetchall()
    ]  # fmt: skip
