"""Feed's SQL at the edge: intakes, lots, silos."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from psycopg import sql
from psycopg.rows import class_row, dict_row

from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.arrival import Arrival
from farmiq.edge.feed import intake, silo
from farmiq.edge.feed.intake import Intake
from farmiq.edge.feed.silo import Limits, Order, Reading, State, Told
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Keep what devices dispensed or imported; returns the events of intakes that were new."""
    intakes = [each for arrival in arrivals for each in intake.of(arrival)]
    new = await keep(tx, intakes)
    imported = [each for each in intakes if each.key in new and each.import_row]
    if imported:
        await _warn_of_repeats(tx, imported)
    return [each.event for each in intakes if each.key in new]


async def keep(tx: db.Connection, intakes: Sequence[Intake]) -> set[tuple[str, UUID]]:
    """Write the intakes down; returns (tenant, id) of those that were new."""
    rows = await db.fetch_all(
        tx,
        sql.SQL("""
            insert into feed_intakes (intake_id, tenant_id, farm_id, barn_id, device_id, source,
              feed_lot_id, quantity_kg, occurred_at, parent_event_id, import_row, import_ref,
              clock_suspect, recorded_at)
            select i.*, clock.now
            from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
              %s::text[], %s::float8[], %s::timestamptz[], %s::uuid[], %s::int[], %s::text[],
              %s::bool[]) as i,
              (select fn_now() as now) clock
            on conflict do nothing
            returning tenant_id, intake_id
        """),
        [each.event.event_id for each in intakes],
        [each.event.tenant_id for each in intakes],
        [each.event.farm_id for each in intakes],
        [each.event.barn_id for each in intakes],
        [each.event.device_id or None for each in intakes],
        [each.source for each in intakes],
        [each.feed_lot_id for each in intakes],
        [each.quantity_kg for each in intakes],
        [each.occurred_at for each in intakes],
        [each.parent_event_id for each in intakes],
        [each.import_row for each in intakes],
        [each.import_ref for each in intakes],
        [each.clock_suspect for each in intakes],
    )
    return {(tenant_id, intake_id) for tenant_id, intake_id in rows}


async def _warn_of_repeats(tx: db.Connection, imported: Sequence[Intake]) -> None:
    """The same rows under another time are kept, since they may be true; a person should look."""
    for tenant_id, device_id, count in await _repeats(tx, imported):
        alert = Alert(
            kind="feed.import_repeated",
            subject=f"{tenant_id}/{device_id}",
            severity="warning",
            message=(
                f"{device_id} imported rows that it had imported before under another time; they "
                "were recorded again. If it was the same file, see docs/feed.md"
            ),
        )
        await alerts.raise_(tx, alert, count=count)


async def _repeats(tx: db.Connection, imported: Sequence[Intake]) -> list[tuple[Any, ...]]:
    """(tenant, device, rows) of imports that say what an import of the last month said."""
    return await db.fetch_all(
        tx,
        sql.SQL("""
            select n.tenant_id, n.device_id, count(distinct n.intake_id)::int
            from feed_intakes n
            join feed_intakes o using (tenant_id, farm_id, barn_id, device_id, import_row,
              import_ref, feed_lot_id, quantity_kg)
            where n.intake_id = any(%s) and o.parent_event_id <> n.parent_event_id
              and o.occurred_at between n.occurred_at - interval '31 days'
                and n.occurred_at + interval '31 days'
            group by n.tenant_id, n.device_id order by n.tenant_id, n.device_id
        """),
        [each.event.event_id for each in imported],
    )


@dataclass(frozen=True, slots=True)
class Lot:
    """A row of feed_lots. `content_hash` tells a repeat from another lot under the same key."""

    event: BusEvent
    feed_lot_id: str
    quantity_kg: float
    recorded_by: str
    idempotency_key: str | None
    content_hash: bytes


async def is_known_tenant(tx: db.Connection, tenant_id: str) -> bool:
    """Whether a device, be it revoked, or a farm of this edge is the tenant's."""
    known: bool = await db.fetch_value(
        tx,
        "select exists (select from devices where tenant_id = %s) "
        "or exists (select from farms where tenant_id = %s)",
        tenant_id,
        tenant_id,
    )
    return known


async def keep_lot(tx: db.Connection, lot: Lot) -> bool:
    """False if its id or its key stands there already."""
    cursor = await tx.execute(
        """
        insert into feed_lots (event_id, tenant_id, farm_id, barn_id, device_id, feed_lot_id,
          quantity_kg, occurred_at, recorded_by, idempotency_key, content_hash, recorded_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now())
        on conflict do nothing
        """,
        (
            lot.event.event_id,
            lot.event.tenant_id,
            lot.event.farm_id,
            lot.event.barn_id,
            lot.event.device_id or None,
            lot.feed_lot_id,
            lot.quantity_kg,
            lot.event.occurred_at,
            lot.recorded_by,
            lot.idempotency_key,
            lot.content_hash,
        ),
    )
    return cursor.rowcount > 0


async def known_lots(
    tx: db.Connection, *, tenant_id: str, event_id: UUID, idempotency_key: str | None
) -> list[dict[str, Any]]:
    """What stands under this id or this key, with the hash of what was said."""
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            """
            select event_id, tenant_id, farm_id, barn_id, device_id, feed_lot_id, quantity_kg,
              occurred_at, recorded_at, recorded_by, content_hash
            from feed_lots
            where tenant_id = %s and (event_id = %s or idempotency_key = %s)
            """,
            (tenant_id, event_id, idempotency_key),
        )
        return await cursor.fetchall()


LOT = (
    "event_id", "tenant_id", "farm_id", "barn_id", "device_id", "feed_lot_id", "quantity_kg",
    "occurred_at", "recorded_at", "recorded_by",
)  # fmt: skip
INTAKE = (
    "intake_id", "tenant_id", "farm_id", "barn_id", "device_id", "source", "feed_lot_id",
    "quantity_kg", "occurred_at", "recorded_at", "parent_event_id", "clock_suspect",
)  # fmt: skip


async def lots(connection: db.Connection, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A page of lots, newest first; `asked` is a page of a FeedFilter."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            """
            select event_id, tenant_id, farm_id, barn_id, device_id, feed_lot_id, quantity_kg,
              occurred_at, recorded_at, recorded_by
            from feed_lots
            where (%(tenant)s::text is null or tenant_id = %(tenant)s)
              and (%(farm)s::text is null or farm_id = %(farm)s)
              and (%(barn)s::text is null or barn_id = %(barn)s)
              and (%(device)s::text is null or device_id = %(device)s)
              and (%(lot)s::text is null or feed_lot_id = %(lot)s)
              and (%(begin)s::timestamptz is null or occurred_at >= %(begin)s)
              and (%(end)s::timestamptz is null or occurred_at < %(end)s)
              and (%(after_at)s::timestamptz is null
                or (occurred_at, event_id) < (%(after_at)s, %(after_id)s))
            order by occurred_at desc, event_id desc
            limit %(limit)s
            """,
            asked,
        )
        return await cursor.fetchall()


async def intakes(connection: db.Connection, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A page of intakes, newest first; `asked` as for lots."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            """
            select intake_id, tenant_id, farm_id, barn_id, device_id, source, feed_lot_id,
              quantity_kg, occurred_at, recorded_at, parent_event_id, clock_suspect
            from feed_intakes
            where (%(tenant)s::text is null or tenant_id = %(tenant)s)
              and (%(farm)s::text is null or farm_id = %(farm)s)
              and (%(barn)s::text is null or barn_id = %(barn)s)
              and (%(device)s::text is null or device_id = %(device)s)
              and (%(lot)s::text is null or feed_lot_id = %(lot)s)
              and (%(begin)s::timestamptz is null or occurred_at >= %(begin)s)
              and (%(end)s::timestamptz is null or occurred_at < %(end)s)
              and (%(after_at)s::timestamptz is null
                or (occurred_at, intake_id) < (%(after_at)s, %(after_id)s))
            order by occurred_at desc, intake_id desc
            limit %(limit)s
            """,
            asked,
        )
        return await cursor.fetchall()


# As the table silo_settings has them.
NOISE_KG, REFILL_KG = 10.0, 200.0


@dataclass(frozen=True, slots=True)
class Silo:
    """A device whose weights are taken for intakes."""

    tenant_id: str
    device_id: str
    derive_since: datetime
    noise_kg: float
    refill_kg: float

    @property
    def limits(self) -> Limits:
        return Limits(noise_kg=self.noise_kg, refill_kg=self.refill_kg)


async def silos(tx: db.Connection) -> list[Silo]:
    """Set by `farmiq silo set`, or registered with `--derive-intake` and the limits of the table.

    What `farmiq silo set` says counts, also when it says no.
    """
    async with tx.cursor(row_factory=class_row(Silo)) as cursor:
        await cursor.execute(
            """
            select tenant_id, device_id, derive_since, noise_kg, refill_kg
            from silo_settings where derive_intake
            union all
            select d.tenant_id, d.device_id, d.created_at, %s, %s
            from devices d
            where d.derive_intake and d.revoked_at is null and not exists (
              select from silo_settings s
              where s.tenant_id = d.tenant_id and s.device_id = d.device_id)
            order by tenant_id, device_id
            """,
            (NOISE_KG, REFILL_KG),
        )
        return await cursor.fetchall()


async def state(tx: db.Connection, of: Silo) -> State:
    """The silo's state, ours alone until the transaction ends."""
    await tx.execute(
        "insert into silo_states (tenant_id, device_id) values (%s, %s) on conflict do nothing",
        (of.tenant_id, of.device_id),
    )
    found = await db.fetch_value(
        tx,
        "select state::text from silo_states where tenant_id = %s and device_id = %s for update",
        of.tenant_id,
        of.device_id,
    )
    return silo.read_state(found)


async def keep_state(tx: db.Connection, of: Silo, now: State) -> None:
    await tx.execute(
        "update silo_states set state = %s, derived_at = fn_now() "
        "where tenant_id = %s and device_id = %s",
        (msgspec.json.encode(now).decode(), of.tenant_id, of.device_id),
    )


async def settled_readings(
    tx: db.Connection, of: Silo, *, after: Order | None, settle_s: float, most: int
) -> list[Reading]:
    """The next weights in the order of their time, up to the first that arrived just now.

    One that arrived within `settle_s` holds itself and all later ones back: others of its time
    may still be on the way. Only the first `most` are looked at: one behind them holds none of
    them back. A time that cannot be right says nothing about order.
    """
    begin, after_id = after or (of.derive_since, None)
    cursor = await tx.execute(
        """
            with unread as (
              select id, occurred_at, metric_value, unit, farm_id, barn_id, ingested_at
              from telemetry_raw
              where tenant_id = %(tenant_id)s and device_id = %(device_id)s
                and metric_type = %(metric)s and not clock_suspect
                and lower(unit) = any(%(units)s)
                and occurred_at >= %(begin)s
                and (%(after_id)s::uuid is null or (occurred_at, id) > (%(begin)s, %(after_id)s))
              order by occurred_at, id limit %(most)s
            )
            select id, occurred_at, metric_value, unit, farm_id, barn_id from unread
            where occurred_at < coalesce((
              select min(u.occurred_at) from unread u
              where u.ingested_at > (select fn_now()) - %(settle_s)s * interval '1 second'
            ), 'infinity')
            order by occurred_at, id
        """,
        {
            "tenant_id": of.tenant_id,
            "device_id": of.device_id,
            "metric": silo.METRIC,
            "units": list(silo.KG_OF),
            "begin": begin,
            "after_id": after_id,
            "settle_s": settle_s,
            "most": most,
        },
    )
    return [
        Reading(event_id, at, value * silo.KG_OF[unit.lower()], farm_id, barn_id)
        for event_id, at, value, unit, farm_id, barn_id in await cursor.fetchall()
    ]


async def told(tx: db.Connection, of: Silo) -> Told:
    """When the device itself told of feed; a clock that cannot be right counts as its arrival."""
    rows = await db.fetch_all(
        tx,
        """
        select max(t.at) filter (where t.at < %s), min(t.at) filter (where t.at >= %s)
        from (
          select case when clock_suspect then recorded_at else occurred_at end as at
          from feed_intakes
          where tenant_id = %s and device_id = %s and parent_event_id is null) t
        """,
        of.derive_since,
        of.derive_since,
        of.tenant_id,
        of.device_id,
    )
    return Told(*rows[0])


async def derived_between(
    tx: db.Connection, of: Silo, *, begin: datetime, end: datetime | None
) -> tuple[int, float]:
    """(how many intakes were derived from the silo's weight in this time, how much that was)."""
    rows = await db.fetch_all(
        tx,
        """
        select count(*)::int, coalesce(sum(quantity_kg), 0) from feed_intakes
        where tenant_id = %s and device_id = %s and parent_event_id is not null
          and import_row is null and occurred_at >= %s
          and (%s::timestamptz is null or occurred_at < %s)
        """,
        of.tenant_id,
        of.device_id,
        begin,
        end,
        end,
    )
    count, total_kg = rows[0]
    return count, total_kg


async def forget_lots(tx: db.Connection, *, days: float, most: int) -> int:
    """Delete lots that were entered so many days ago and that the cloud has."""
    cursor = await tx.execute(
        """
        delete from feed_lots where ctid = any(array(
          select ctid from feed_lots
          where recorded_at < (select fn_now()) - %s * interval '1 day'
            and not fn_unsynced(event_id) limit %s))
        """,
        (days, most),
    )
    return cursor.rowcount


async def forget_intakes(tx: db.Connection, *, days: float, most: int) -> int:
    """Delete intakes that were recorded so many days ago and that the cloud has."""
    cursor = await tx.execute(
        """
        delete from feed_intakes where ctid = any(array(
          select ctid from feed_intakes
          where recorded_at < (select fn_now()) - %s * interval '1 day'
            and not fn_unsynced(intake_id) limit %s))
        """,
        (days, most),
    )
    return cursor.rowcount
