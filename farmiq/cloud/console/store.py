"""What the console reads, always as the person who looks: row level security decides."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from farmiq.cloud.console.readings import Company, Reading
from farmiq.cloud.console.sparkline import Point
from farmiq.plumbing import db

HISTORY = 30


@asynccontextmanager
async def as_person(pool: db.Pool, company_id: UUID) -> AsyncIterator[db.Connection]:
    """A transaction that sees what people of this company may see (C-76)."""
    async with db.transaction(pool) as connection:
        await connection.execute("set local role authenticated")
        await connection.execute(
            "select set_config('farmiq.company_id', %s, true)", (str(company_id),)
        )
        yield connection


async def company(connection: db.Connection, user_id: UUID) -> Company | None:
    """The company of the transaction and the e-mail of the person; None if either is gone."""
    rows = await db.fetch_all(
        connection,
        """
        select c.name, c.tenant_id, c.timezone, u.email
        from companies c join users u using (company_id)
        where u.user_id = %s
        """,
        user_id,
    )
    if not rows:
        return None
    name, tenant_id, timezone, email = rows[0]
    return Company(name=name, tenant_id=tenant_id, timezone=timezone, email=email)


async def latest(connection: db.Connection) -> list[Reading]:
    """The newest reading of every sensor with the last few before it, in one query."""
    # Binary: of 200 devices these are tens of thousands of numbers.
    cursor = await connection.cursor(binary=True).execute(
        """
        select l.farm_id, l.barn_id, l.device_id, l.metric_type, l.metric_value, l.unit,
          l.occurred_at, l.stored_at, l.reading_count, h.instants, h.amounts
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
            history=tuple(map(Point, instants, amounts)),
        )
        for (
            farm_id, barn_id, device_id, metric_type, value, unit,
            captured_at, arrived_at, count, instants, amounts,
        ) in await cursor.fetchall()
    ]  # fmt: skip
