"""SQL of the states of series; and of the clock, and of being the only one at a job."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from farmiq.cloud.alerts.evaluating.advance import Entry, SeriesState
from farmiq.cloud.alerts.evaluating.ruleset import Series
from farmiq.plumbing import db

_entries_decoder = msgspec.json.Decoder(dict[str, Entry])


async def now(tx: db.Connection) -> datetime:
    moment: datetime = await db.fetch_value(tx, "select fn_now()")
    return moment


async def lock_job(tx: db.Connection, name: str) -> bool:
    """Be the only one that does a job until the commit; False if another one does."""
    return bool(
        await db.fetch_value(
            tx, "select pg_try_advisory_xact_lock(hashtextextended(%s, 7502))", name
        )
    )


async def lock_states(tx: db.Connection, series: Collection[Series]) -> dict[Series, SeriesState]:
    """The states of these series, locked until the commit; new series get one."""
    states = await _lock(tx, series)
    missing = [key for key in series if key not in states]
    if missing:
        await tx.execute(
            """
            insert into alert_states (tenant_id, signal, subject, heard_at)
            select k.*, fn_now() from unnest(%s::text[], %s::text[], %s::text[])
              as k(tenant_id, signal, subject)
            order by k.tenant_id, k.signal, k.subject
            on conflict on constraint alert_states_pkey do nothing
            """,
            db.columns(missing, "tenant_id", "signal", "subject"),
        )
        states |= await _lock(tx, missing)
    return states


async def _lock(tx: db.Connection, series: Collection[Series]) -> dict[Series, SeriesState]:
    rows = await db.fetch_all(
        tx,
        """
        select s.tenant_id, s.signal, s.subject, s.last_at, s.last_value, s.heard_at,
          s.states::text
        from unnest(%s::text[], %s::text[], %s::text[]) as k(tenant_id, signal, subject)
          join alert_states s on s.tenant_id = k.tenant_id and s.signal = k.signal
            and s.subject = k.subject
        order by s.tenant_id, s.signal, s.subject for update of s
        """,
        *db.columns(series, "tenant_id", "signal", "subject"),
    )
    return {_series(row): _state(row) for row in rows}


async def save_states(tx: db.Connection, states: dict[Series, SeriesState]) -> None:
    if not states:
        return
    await tx.execute(
        """
        update alert_states s set last_at = n.last_at, last_value = n.last_value,
          heard_at = n.heard_at, states = n.states
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::float8[],
          %s::timestamptz[], %s::text[]::jsonb[])
          as n(tenant_id, signal, subject, last_at, last_value, heard_at, states)
        where s.tenant_id = n.tenant_id and s.signal = n.signal and s.subject = n.subject
        """,
        (
            *db.columns(states, "tenant_id", "signal", "subject"),
            *db.columns(states.values(), "last_at", "last_value", "heard_at"),
            [msgspec.json.encode(state.entries).decode() for state in states.values()],
        ),
    )


async def busy_states(tx: db.Connection) -> dict[Series, SeriesState]:
    """Every series of which some rule has something pending or open, as it is now.

    The whole table is read: with rules on rises most series are such, and an index on what changes
    with every value would cost more than a look every minute.
    """
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, signal, subject, last_at, last_value, heard_at, states::text
        from alert_states where states <> '{}'
        """,
    )
    return {_series(row): _state(row) for row in rows}


def _series(row: Sequence[Any]) -> Series:
    return Series(*row[:3])


def _state(row: Sequence[Any]) -> SeriesState:
    return SeriesState(row[3], row[4], row[5], _entries_decoder.decode(row[6]))
