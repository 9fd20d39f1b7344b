"""The SQL of the bridge: which wakes are owed to the farm's telemetry, and which were taken."""

from collections.abc import Collection, Sequence
from uuid import UUID

from psycopg.rows import class_row

from farmiq.cloud.camera.bridge.events import Wake
from farmiq.plumbing import db


async def owed(tx: db.Connection, *, most: int, without: Collection[str]) -> list[Wake]:
    """Wakes whose image was looked at, oldest first; not those of the tenants in `without`."""
    async with tx.cursor(row_factory=class_row(Wake)) as cursor:
        await cursor.execute(
            """
            select o.observation_id, c.tenant_id, o.program_id, o.site_id, o.device_id,
              o.payload_id, o.image_id, i.image_url, o.size_bytes, o.sha256,
              case when p.clock_suspect then p.created_at else p.captured_at end as occurred_at,
              coalesce(n.numbers, '{}') || jsonb_strip_nulls(jsonb_build_object(
                'temperature', p.temperature, 'humidity', p.humidity, 'pressure', p.pressure,
                'gas_resistance', p.gas_resistance, 'battery_voltage', p.battery_voltage,
                'wifi_rssi', p.wifi_rssi)) as numbers
            from petri_observations o
            join companies c on c.company_id = o.company_id
            join device_wake_payloads p on p.payload_id = o.payload_id
            join device_images i on i.image_id = o.image_id
            left join lateral (
              select jsonb_object_agg(e.key, e.number) as numbers
              from (
                select v.key, fn_jsonb_number(v.value) as number
                from jsonb_each(case jsonb_typeof(p.telemetry_data) when 'object'
                  then p.telemetry_data else '{}' end) v
                where jsonb_typeof(v.value) = 'number') e
              where e.number is not null) n on true
            where o.bridged_at is null and o.quality is not null and c.tenant_id <> all(%s)
            order by o.created_at limit %s
            """,
            (list(without), most),
        )
        return await cursor.fetchall()


async def settle(
    tx: db.Connection, observation_ids: Sequence[UUID], *, problem: str | None = None
) -> None:
    await tx.execute(
        """
        update petri_observations set bridged_at = fn_now(), bridge_problem = %s
        where observation_id = any(%s) and bridged_at is null
        """,
        (problem, list(observation_ids)),
    )
