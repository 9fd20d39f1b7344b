"""Resync: history that the cloud has acknowledged, sent once more on purpose (C-99).

For a cloud that lost something, or a consumer that is new. Events keep their ids; what is there is
not stored twice. The outbox is only read: whatever lives in it goes on as it does.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from farmiq.config import EdgeSettings
from farmiq.edge import audit
from farmiq.edge.sync import pace, verdict
from farmiq.edge.sync.cloud import MOST_BYTES, Cloud
from farmiq.edge.sync.store import Owed
from farmiq.plumbing import db, ids

# A cloud that is away for longer than these tries is told to the person who waits.
TRIES = 6


# So many events in a row on which alone the cloud fails: it is broken, not they.
BROKEN_AFTER = 10


class StoppedError(Exception):
    """The cloud was not reached, or does not let us; the text says why and how to go on."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Delivered events that happened from `since` until before `until`."""

    since: datetime
    until: datetime
    tenant_id: str | None = None
    device_id: str | None = None


@dataclass(slots=True)
class Done:
    """How far it came: what the cloud took, and what it did not."""

    sent: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Streak:
    """Events in a row on which alone the cloud failed."""

    failed: int = 0


_CHOSEN = """
  status = 'acked' and occurred_at >= %(since)s and occurred_at < %(until)s
  and (%(tenant_id)s::text is null or tenant_id = %(tenant_id)s)
  and (%(device_id)s::text is null or device_id = %(device_id)s)
"""


async def counted(tx: db.Connection, wish: Wish) -> dict[str, int]:
    """How many events are meant, by tenant."""
    cursor = await tx.execute(
        f"""
        select tenant_id, count(*) from sync_outbox where {_CHOSEN} group by 1 order by 1
        """.encode(),  # noqa: S608 - the text is this file's
        _values(wish),
    )
    return dict(await cursor.fetchall())


async def resync(
    pool: db.Pool,
    cloud: Cloud,
    settings: EdgeSettings,
    wish: Wish,
    *,
    rate_per_s: float,
    actor: str,
    say: Callable[[str], None] = lambda _: None,
) -> Done:
    """Send them, oldest first, tenant by tenant. Raises StoppedError; what was sent stays sent."""
    async with db.transaction(pool) as tx:
        meant = await counted(tx, wish)
        await _note(tx, "sync.resync", wish, actor, meant=meant)
    done, streak = Done(), _Streak()
    try:
        for tenant_id, count in meant.items():
            say(f"{tenant_id}: {count} events")
            async for rows in _batches(pool, replace(wish, tenant_id=tenant_id), settings):
                refused = await _deliver(cloud, settings, rows, streak)
                done.sent += len(rows) - refused
                done.refused += refused
                # Live events have the right of way.
                await asyncio.sleep(len(rows) / rate_per_s)
    finally:
        async with db.transaction(pool) as tx:
            await _note(tx, "sync.resync.ended", wish, actor, sent=done.sent, refused=done.refused)
    return done


async def _batches(pool: db.Pool, wish: Wish, settings: EdgeSettings) -> AsyncIterator[list[Owed]]:
    after: tuple[datetime, UUID] | None = None
    while True:
        async with db.transaction(pool) as tx:
            rows = await _next(tx, wish, after, most=settings.sync_batch)
        if not rows:
            return
        yield rows
        after = rows[-1].occurred_at, rows[-1].id


async def _deliver(
    cloud: Cloud, settings: EdgeSettings, rows: Sequence[Owed], streak: _Streak
) -> int:
    """Send some; returns how many the cloud will never take."""
    for failures in range(TRIES):
        answer = await cloud.send(
            f"resync-{ids.new()}", rows[0].tenant_id, [row.event() for row in rows], republish=True
        )
        match verdict.judge(answer, count=len(rows)):
            case verdict.Delivered():
                streak.failed = 0
                return 0
            case verdict.Refused(reasons):
                rest = [row for index, row in enumerate(rows) if index not in reasons]
                return len(reasons) + (await _deliver(cloud, settings, rest, streak) if rest else 0)
            case verdict.Failed() as failed if len(rows) == 1:
                streak.failed += 1
                if streak.failed >= BROKEN_AFTER:
                    raise _stopped(failed.of_all(), rows[0])
                return 1
            case verdict.Failed():
                first, second = pace.halves(rows)
                return await _deliver(cloud, settings, first, streak) + await _deliver(
                    cloud, settings, second, streak
                )
            case verdict.Away() as away:
                if verdict.needs_a_person(away.code) or failures == TRIES - 1:
                    raise _stopped(away, rows[0])
                await asyncio.sleep(
                    verdict.pause_s(
                        failures,
                        cap_s=settings.sync_breaker_s,
                        retry_after_s=away.retry_after_s,
                    )
                )
    raise AssertionError("the last try returns or raises")


def _stopped(away: verdict.Away, row: Owed) -> StoppedError:
    at = row.occurred_at.astimezone(UTC)
    return StoppedError(
        f"{away.code}: {away.message or 'no reason given'}. Go on later with "
        f"--tenant {row.tenant_id} --from {at:%Y-%m-%dT%H:%M:%S}, and with the tenants behind it"
    )


async def _next(
    tx: db.Connection, wish: Wish, after: tuple[datetime, UUID] | None, *, most: int
) -> list[Owed]:
    """The next events in their order, as many as fit into one batch."""
    async with tx.cursor(row_factory=class_row(Owed)) as cursor:
        await cursor.execute(
            f"""
            select id, tenant_id, farm_id, barn_id, device_id, session_id, event_type, occurred_at,
              trace_id, payload_json::text as payload, clock_suspect
            from sync_outbox
            where {_CHOSEN}
              and (%(after_id)s::uuid is null
                or (occurred_at, id) > (%(after_at)s::timestamptz, %(after_id)s::uuid))
            order by occurred_at, id limit %(most)s
            """.encode(),  # noqa: S608 - the text is this file's
            {
                **_values(wish),
                "after_at": after[0] if after else None,
                "after_id": after[1] if after else None,
                "most": most,
            },
        )
        return _fitting(await cursor.fetchall())


def _fitting(rows: list[Owed]) -> list[Owed]:
    room = MOST_BYTES
    for index, row in enumerate(rows):
        room -= len(row.payload.encode()) + pace.ENVELOPE_BYTES
        if room < 0 and index:
            return rows[:index]
    return rows


def _values(wish: Wish) -> dict[str, Any]:
    return {
        "since": wish.since,
        "until": wish.until,
        "tenant_id": wish.tenant_id,
        "device_id": wish.device_id,
    }


async def _note(tx: db.Connection, action: str, wish: Wish, actor: str, **more: Any) -> None:
    asked = {name: value for name, value in _values(wish).items() if value is not None}
    await audit.note(tx, actor=actor, action=action, subject="sync_outbox", asked=asked, **more)
