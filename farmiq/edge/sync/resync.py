"""Resync: history that the cloud has acknowledged, sent once more on purpose (C-99).

For a cloud that lost something, or a consumer that is new. Events keep their ids; what is there is
not stored twice. The outbox is only read.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from farmiq.config import EdgeSettings
from farmiq.edge import audit
from farmiq.edge.sync import rules
from farmiq.edge.sync.cloud import MAX_BATCH_BYTES, Cloud
from farmiq.edge.sync.forwarder import backoff_of
from farmiq.edge.sync.rules import PendingEvent
from farmiq.plumbing import db, ids

# After so many attempts the person who waits learns that the cloud is away.
TRIES = 6
# After so many events in a row that fail alone, the cloud is broken and not the events.
BROKEN_AFTER = 10


class StoppedError(Exception):
    """The cloud was not reached, or does not let us; the text says why and how to go on."""


@dataclass(frozen=True, slots=True)
class ResyncFilter:
    """Delivered events that happened from `since` until before `until`."""

    since: datetime
    until: datetime
    tenant_id: str | None = None
    device_id: str | None = None


@dataclass(slots=True)
class ResyncResult:
    """How many events the cloud accepted, and how many it rejected."""

    sent: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Streak:
    """Events in a row that failed when they were sent alone."""

    failed: int = 0


_CHOSEN = """
  status = 'acked' and occurred_at >= %(since)s and occurred_at < %(until)s
  and (%(tenant_id)s::text is null or tenant_id = %(tenant_id)s)
  and (%(device_id)s::text is null or device_id = %(device_id)s)
"""


async def count_events(tx: db.Connection, chosen: ResyncFilter) -> dict[str, int]:
    """How many events match, by tenant."""
    cursor = await tx.execute(
        f"""
        select tenant_id, count(*) from sync_outbox where {_CHOSEN} group by 1 order by 1
        """.encode(),  # noqa: S608 - the text is this file's
        asdict(chosen),
    )
    return dict(await cursor.fetchall())


async def resync(
    pool: db.Pool,
    cloud: Cloud,
    settings: EdgeSettings,
    chosen: ResyncFilter,
    *,
    rate_per_s: float,
    actor: str,
    say: Callable[[str], None] = lambda _: None,
) -> ResyncResult:
    """Send them, oldest first, tenant by tenant. Raises StoppedError; what was sent stays sent."""
    async with db.transaction(pool) as tx:
        counts = await count_events(tx, chosen)
        await _audit(tx, "sync.resync", chosen, actor, meant=counts)
    done, streak = ResyncResult(), _Streak()
    try:
        for tenant_id, count in counts.items():
            say(f"{tenant_id}: {count} events")
            async for rows in _batches(pool, replace(chosen, tenant_id=tenant_id), settings):
                refused = await _deliver(cloud, settings, rows, streak)
                done.sent += len(rows) - refused
                done.refused += refused
                # Live events go first.
                await asyncio.sleep(len(rows) / rate_per_s)
    finally:
        async with db.transaction(pool) as tx:
            await _audit(
                tx, "sync.resync.ended", chosen, actor, sent=done.sent, refused=done.refused
            )
    return done


async def _batches(
    pool: db.Pool, chosen: ResyncFilter, settings: EdgeSettings
) -> AsyncIterator[list[PendingEvent]]:
    after: tuple[datetime, UUID] | None = None
    while True:
        async with db.transaction(pool) as tx:
            rows = await _next(tx, chosen, after, limit=settings.sync_batch)
        if not rows:
            return
        yield rows
        after = rows[-1].occurred_at, rows[-1].id


async def _deliver(
    cloud: Cloud, settings: EdgeSettings, rows: Sequence[PendingEvent], streak: _Streak
) -> int:
    """Send a batch; returns how many events the cloud rejects for good."""
    for failures in range(TRIES):
        answer = await cloud.send(
            f"resync-{ids.new()}", rows[0].tenant_id, [row.event() for row in rows], republish=True
        )
        match rules.classify_response(answer, count=len(rows)):
            case rules.Delivered():
                streak.failed = 0
                return 0
            case rules.Permanent(reasons):
                rest = [row for index, row in enumerate(rows) if index not in reasons]
                return len(reasons) + (await _deliver(cloud, settings, rest, streak) if rest else 0)
            case rules.Transient() as failed if len(rows) == 1:
                streak.failed += 1
                if streak.failed >= BROKEN_AFTER:
                    raise _stopped(failed.as_outage(), rows[0])
                return 1
            case rules.Transient():
                first, second = rules.split(rows)
                return await _deliver(cloud, settings, first, streak) + await _deliver(
                    cloud, settings, second, streak
                )
            case rules.Unavailable() as outage:
                if rules.needs_operator(outage.code) or failures == TRIES - 1:
                    raise _stopped(outage, rows[0])
                backoff = replace(backoff_of(settings), cap_s=settings.sync_breaker_s)
                await asyncio.sleep(backoff.pause_s(failures, outage))
    raise AssertionError("the last try returns or raises")


def _stopped(outage: rules.Unavailable, row: PendingEvent) -> StoppedError:
    at = row.occurred_at.astimezone(UTC)
    return StoppedError(
        f"{outage.code}: {outage.message or 'no reason given'}. Go on later with "
        f"--tenant {row.tenant_id} --from {at:%Y-%m-%dT%H:%M:%S}, and with the tenants behind it"
    )


async def _next(
    tx: db.Connection, chosen: ResyncFilter, after: tuple[datetime, UUID] | None, *, limit: int
) -> list[PendingEvent]:
    """The next events in their order, as many as fit into one batch."""
    rows = await db.fetch_as(
        tx,
        PendingEvent,
        f"""
            select id, tenant_id, farm_id, barn_id, device_id, session_id, event_type, occurred_at,
              trace_id, payload_json::text as payload, clock_suspect
            from sync_outbox
            where {_CHOSEN}
              and (%(after_id)s::uuid is null
                or (occurred_at, id) > (%(after_at)s::timestamptz, %(after_id)s::uuid))
            order by occurred_at, id limit %(limit)s
        """.encode(),  # noqa: S608 - the text is this file's
        {
            **asdict(chosen),
            "after_at": after[0] if after else None,
            "after_id": after[1] if after else None,
            "limit": limit,
        },
    )
    return rules.fitting(rows, MAX_BATCH_BYTES)[0] if rows else []


async def _audit(
    tx: db.Connection, action: str, chosen: ResyncFilter, actor: str, **more: Any
) -> None:
    filters = {name: value for name, value in asdict(chosen).items() if value is not None}
    await audit.note(tx, actor=actor, action=action, subject="sync_outbox", asked=filters, **more)
