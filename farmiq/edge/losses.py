"""The loss ledger: what was dropped on purpose is stored and sent to the cloud (C-83)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.edge import outbox
from farmiq.messages import bus, device
from farmiq.messages.bus import BusEvent
from farmiq.messages.topics import Place
from farmiq.plumbing import db, ids

QUARANTINE = "quarantine"


async def enter(tx: db.Connection, losses: Sequence[BusEvent]) -> list[BusEvent]:
    """Store device.buffer.dropped events; return them for the outbox."""
    payloads = [
        msgspec.json.decode(loss.payload, type=device.DeviceBufferDropped) for loss in losses
    ]
    await tx.execute(
        """
        insert into loss_ledger (loss_id, tenant_id, farm_id, barn_id, device_id, occurred_at,
          class, count, first_seq, last_seq, reason, recorded_at)
        select l.*, fn_now() from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[],
          %s::text[], %s::timestamptz[], %s::text[], %s::int8[], %s::int8[], %s::int8[],
          %s::text[]) l
        on conflict on constraint loss_ledger_pkey do nothing
        """,
        (
            *db.columns(
                losses, "event_id", "tenant_id", "farm_id", "barn_id", "device_id", "occurred_at"
            ),
            *db.columns(payloads, "event_class", "count", "first_seq", "last_seq", "reason"),
        ),
    )
    return list(losses)


async def of_quarantine(tx: db.Connection, places: Iterable[Place], *, reason: str) -> int:
    """Enter dropped messages of quarantine by the place of their topic; return how many.

    The cloud gets the entries of tenants whose events it gets anyway. A tenant that only a wrong
    topic names stays in the ledger of this edge: the cloud would reject it each time (C-104).
    """
    counted = Counter(places)
    # Always in one order: two transactions must not deadlock.
    in_order = sorted(counted.items(), key=lambda item: astuple(item[0]))
    entered = [_dropped(place, count, reason) for place, count in in_order]
    await enter(tx, entered)
    known = await _tenants_of_cloud(tx, {loss.tenant_id for loss in entered})
    await outbox.append(tx, [loss for loss in entered if loss.tenant_id in known])
    return counted.total()


def _dropped(place: Place, count: int, reason: str) -> BusEvent:
    event_id = ids.new()
    payload = device.DeviceBufferDropped(
        event_class=QUARANTINE, count=count, first_seq=0, last_seq=0, reason=reason
    )
    return bus.own_event(
        device.BUFFER_DROPPED,
        place,
        payload,
        event_id=event_id,
        occurred_at=datetime.now(UTC),
        trace_id=str(event_id),
    )


async def _tenants_of_cloud(tx: db.Connection, tenants: set[str]) -> set[str]:
    """Those of the tenants that have events in the outbox, or had some delivered."""
    rows = await db.fetch_all(
        tx,
        """
        select t.tenant_id from unnest(%s::text[]) t(tenant_id)
        where exists (select from sync_outbox o where o.tenant_id = t.tenant_id)
          or exists (select from sync_state s where s.tenant_id = t.tenant_id)
        """,
        sorted(tenants),
    )
    return {row[0] for row in rows}


_FILTER = """
  (%(tenant_id)s::text is null or tenant_id = %(tenant_id)s)
  and (%(device_id)s::text is null or device_id = %(device_id)s)
"""


async def latest(
    connection: db.Connection,
    *,
    before: UUID | None,
    limit: int,
    tenant_id: str | None = None,
    device_id: str | None = None,
) -> list[dict[str, Any]]:
    """Entries before `before`, newest first, by the time of entry: ids come from devices."""
    return await db.fetch_dicts(
        connection,
        f"""
        select loss_id, tenant_id, farm_id, barn_id, device_id, class, count, first_seq,
          last_seq, reason, occurred_at, recorded_at
        from loss_ledger
        where {_FILTER} and (%(before)s::uuid is null or (recorded_at, loss_id) < (
          select b.recorded_at, b.loss_id from loss_ledger b where b.loss_id = %(before)s))
        order by recorded_at desc, loss_id desc limit %(limit)s
        """.encode(),  # noqa: S608 - the text is of this file
        {"before": before, "limit": limit, "tenant_id": tenant_id, "device_id": device_id},
    )


async def totals(
    connection: db.Connection, *, tenant_id: str | None = None, device_id: str | None = None
) -> list[dict[str, Any]]:
    """What is missing, by tenant and class."""
    return await db.fetch_dicts(
        connection,
        f"""
        select tenant_id, class, sum(count)::bigint as count from loss_ledger
        where {_FILTER} group by 1, 2 order by 1, 2
        """.encode(),  # noqa: S608 - the text is of this file
        {"tenant_id": tenant_id, "device_id": device_id},
    )
