"""The SQL of feed at the edge: intakes, lots, silos."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.edge import alerts, batches
from farmiq.edge.alerts import Alert
from farmiq.edge.arrival import Arrival
from farmiq.edge.batches import Placed
from farmiq.edge.feed import rules, silo
from farmiq.edge.feed.rules import Intake
from farmiq.edge.feed.silo import Limits, Order, Reading, Reported, State
from farmiq.edge.posting import Replaced
from farmiq.farm.postings import Posted
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Store what devices dispensed or imported; returns the events of new intakes."""
    intakes = await find_batches(
        tx, [row for arrival in arrivals for row in rules.intakes_of(arrival)]
    )
    new = await add_intakes(tx, intakes)
    imported = [row for row in intakes if row.key in new and row.import_row]
    if imported:
        await _warn_of_repeats(tx, imported)
    return [row.event for row in intakes if row.key in new]


async def find_batches(tx: db.Connection, intakes: Sequence[Intake]) -> list[Intake]:
    """The intakes, with the batch that was in the barn where the device named none."""
    unnamed = [row for row in intakes if row.batch_id is None and not row.clock_suspect]
    places = [
        Placed(row.event.tenant_id, row.event.farm_id, row.event.barn_id, row.occurred_at)
        for row in unnamed
    ]
    named = await batches.at(tx, places)
    by_key = {row.key: batch_id for row, batch_id in zip(unnamed, named, strict=True) if batch_id}
    return [rules.with_batch(row, by_key[row.key]) if row.key in by_key else row for row in intakes]


async def add_intakes(tx: db.Connection, intakes: Sequence[Intake]) -> set[tuple[str, UUID]]:
    """Insert the intakes; returns (tenant, id) of those that were new."""
    rows = await db.fetch_all(
        tx,
        """
        insert into feed_intakes (intake_id, tenant_id, farm_id, barn_id, device_id, source,
          feed_lot_id, quantity_kg, occurred_at, parent_event_id, import_row, import_ref,
          clock_suspect, batch_id, recorded_by, recorded_at)
        select i.*, clock.now
        from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
          %s::text[], %s::float8[], %s::timestamptz[], %s::uuid[], %s::int[], %s::text[],
          %s::bool[], %s::text[], %s::text[]) as i,
          (select fn_now() as now) clock
        on conflict do nothing
        returning tenant_id, intake_id
        """,
        *db.columns(
            intakes, "event.event_id", "event.tenant_id", "event.farm_id", "event.barn_id",
            "device_id", "source", "feed_lot_id", "quantity_kg", "occurred_at", "parent_event_id",
            "import_row", "import_ref", "clock_suspect", "batch_id", "recorded_by",
        ),
    )  # fmt: skip
    return {(tenant_id, intake_id) for tenant_id, intake_id in rows}


async def add_posted(tx: db.Connection, posted: Posted) -> None:
    await add_intakes(tx, [rules.entered(posted)])


async def find_replaced(tx: db.Connection, body: Any) -> Replaced | None:
    """The intake that a body replaces, if it is here; posted_events knows what replaces it."""
    rows = await db.fetch_all(
        tx,
        "select farm_id, barn_id, batch_id, null from feed_intakes "
        "where tenant_id = %s and intake_id = %s",
        body.tenant_id,
        body.replaces,
    )
    return Replaced(*rows[0]) if rows else None


async def find_intake(tx: db.Connection, tenant_id: str, intake_id: UUID) -> dict[str, Any] | None:
    rows = await db.fetch_dicts(
        tx,
        f"select {', '.join(INTAKE)} from feed_intakes "  # noqa: S608 - our own words
        "where tenant_id = %s and intake_id = %s",
        (tenant_id, intake_id),
    )
    return rows[0] if rows else None


async def _warn_of_repeats(tx: db.Connection, imported: Sequence[Intake]) -> None:
    """Alert if rows equal those of an import of the last month; they stay, they may be true."""
    repeats = await db.fetch_all(
        tx,
        """
        select n.tenant_id, n.device_id, count(distinct n.intake_id)::int
        from feed_intakes n
        join feed_intakes o using (tenant_id, farm_id, barn_id, device_id, import_row,
          import_ref, feed_lot_id, quantity_kg)
        where n.intake_id = any(%s) and o.parent_event_id <> n.parent_event_id
          and o.occurred_at between n.occurred_at - interval '31 days'
            and n.occurred_at + interval '31 days'
        group by n.tenant_id, n.device_id order by n.tenant_id, n.device_id
        """,
        [row.event.event_id for row in imported],
    )
    for tenant_id, device_id, count in repeats:
        text = (
            f"{device_id} imported rows that it had imported before under another time; they "
            "were recorded again. If it was the same file, see docs/feed.md"
        )
        alert = Alert("feed.import_repeated", f"{tenant_id}/{device_id}", "warning", text)
        await alerts.raise_(tx, alert, count=count)


@dataclass(frozen=True, slots=True)
class Lot:
    """A row of feed_lots. `content_hash` tells a repeat from another lot under the same key."""

    event: BusEvent
    feed_lot_id: str
    quantity_kg: float
    recorded_by: str
    idempotency_key: str | None
    content_hash: bytes


async def add_lot(tx: db.Connection, lot: Lot) -> bool:
    """False if its id or its key is known already."""
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


LOT = (
    "event_id", "tenant_id", "farm_id", "barn_id", "device_id", "feed_lot_id", "quantity_kg",
    "occurred_at", "recorded_at", "recorded_by",
)  # fmt: skip
INTAKE = (
    "intake_id", "tenant_id", "farm_id", "barn_id", "device_id", "source", "feed_lot_id",
    "quantity_kg", "occurred_at", "recorded_at", "parent_event_id", "clock_suspect", "batch_id",
    "recorded_by",
)  # fmt: skip


async def known_lots(
    tx: db.Connection, *, tenant_id: str, event_id: UUID, idempotency_key: str | None
) -> list[dict[str, Any]]:
    """The lots under this id or this key, with the hash of their content."""
    return await db.fetch_dicts(
        tx,
        f"select {', '.join(LOT)}, content_hash from feed_lots "  # noqa: S608 - our own words
        "where tenant_id = %s and (event_id = %s or idempotency_key = %s)",
        (tenant_id, event_id, idempotency_key),
    )


async def lots(connection: db.Connection, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A page of lots, newest first."""
    return await _page(connection, "feed_lots", LOT, wanted)


async def intakes(connection: db.Connection, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A page of intakes, newest first."""
    return await _page(connection, "feed_intakes", INTAKE, wanted)


async def _page(
    connection: db.Connection, table: str, columns: Sequence[str], wanted: Mapping[str, Any]
) -> list[dict[str, Any]]:
    key = columns[0]
    return await db.fetch_dicts(
        connection,
        f"""
        select {", ".join(columns)} from {table}
        where (%(tenant)s::text is null or tenant_id = %(tenant)s)
          and (%(farm)s::text is null or farm_id = %(farm)s)
          and (%(barn)s::text is null or barn_id = %(barn)s)
          and (%(device)s::text is null or device_id = %(device)s)
          and (%(lot)s::text is null or feed_lot_id = %(lot)s)
          and (%(begin)s::timestamptz is null or occurred_at >= %(begin)s)
          and (%(end)s::timestamptz is null or occurred_at < %(end)s)
          and (%(after_at)s::timestamptz is null
            or (occurred_at, {key}) < (%(after_at)s, %(after_id)s))
        order by occurred_at desc, {key} desc
        limit %(limit)s
        """,  # noqa: S608 - our own words
        wanted,
    )


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


# The settings of all silos: set by `farmiq silo set`, which counts even when it says no, or
# registered with `--derive-intake` and the limits of the table.
SILOS = f"""
  select tenant_id, device_id, derive_intake, derive_since, noise_kg, refill_kg from silo_settings
  union all
  select d.tenant_id, d.device_id, true, d.created_at, {NOISE_KG}, {REFILL_KG} from devices d
  where d.derive_intake and d.revoked_at is null and not exists (
    select from silo_settings o where o.tenant_id = d.tenant_id and o.device_id = d.device_id)
"""  # noqa: S608 - our own words


async def silos(tx: db.Connection) -> list[Silo]:
    return await db.fetch_as(
        tx,
        Silo,
        "select tenant_id, device_id, derive_since, noise_kg, refill_kg "  # noqa: S608 - our own words
        f"from ({SILOS}) s where derive_intake order by tenant_id, device_id",
    )


async def state(tx: db.Connection, of: Silo) -> State:
    """The silo's state, locked until the transaction ends."""
    await tx.execute(
        "insert into silo_states (tenant_id, device_id) values (%s, %s) on conflict do nothing",
        (of.tenant_id, of.device_id),
    )
    encoded = await db.fetch_value(
        tx,
        "select state::text from silo_states where tenant_id = %s and device_id = %s for update",
        of.tenant_id,
        of.device_id,
    )
    return silo.read_state(encoded)


async def set_state(tx: db.Connection, of: Silo, now: State) -> None:
    await tx.execute(
        "update silo_states set state = %s, derived_at = fn_now() "
        "where tenant_id = %s and device_id = %s",
        (msgspec.json.encode(now).decode(), of.tenant_id, of.device_id),
    )


async def settled_readings(
    tx: db.Connection, of: Silo, *, after: Order | None, settle_s: float, limit: int
) -> list[Reading]:
    """The next weights in the order of their time, up to the first that arrived just now.

    One that arrived within `settle_s` holds back itself and all later ones: others of its time may
    still be on the way. Only the first `limit` are read. Suspect clocks are left out.
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
              order by occurred_at, id limit %(limit)s
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
            "limit": limit,
        },
    )
    return [
        Reading(event_id, at, value * silo.KG_OF[unit.lower()], farm_id, barn_id)
        for event_id, at, value, unit, farm_id, barn_id in await cursor.fetchall()
    ]


async def reported(tx: db.Connection, of: Silo) -> Reported:
    """When the device itself reported feed; with a suspect clock its arrival counts."""
    rows = await db.fetch_all(
        tx,
        """
        select max(t.at) filter (where t.at < %s), min(t.at) filter (where t.at >= %s)
        from (
          select case when clock_suspect then recorded_at else occurred_at end as at
          from feed_intakes
          where tenant_id = %s and device_id = %s and parent_event_id is null
            and recorded_by is null) t
        """,
        of.derive_since,
        of.derive_since,
        of.tenant_id,
        of.device_id,
    )
    return Reported(*rows[0])


async def derived_between(
    tx: db.Connection, of: Silo, *, begin: datetime, end: datetime | None
) -> tuple[int, float]:
    """(number, kg) of the intakes derived from the silo's weight in this time."""
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
