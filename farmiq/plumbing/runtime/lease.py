"""A lease in the site's database, for work that only one process may do at a time (C-102).

Whoever holds the lease works and renews it; the others stand by and take it when it runs out or is
given back. A holder that slept through its lease asks before it goes on, and steps back if
another has it. While the database is away nobody can take the lease, so nobody loses it.

A process that is frozen in mid-transaction keeps what it has locked. PostgreSQL ends such a session
by idle_in_transaction_session_timeout, but not in the middle of a pipeline or of COPY: whoever has
the turn ends those. The lease itself is therefore taken and renewed by single statements: a holder
that is frozen while it renews does not keep the row from the next one.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, NoReturn

import prometheus_client

from farmiq.plumbing import db, log
from farmiq.plumbing.backoff import Backoff

ACTIVE = prometheus_client.Gauge(
    "farmiq_turn_active", "1 where this process holds the lease", ["name"]
)
# How often in its time a lease is renewed, and how often a standby looks, at least every second.
_RENEWALS = 3
_LOOK_S = 1.0
_END_ROUND_S = 1.0
# Whoever holds a lease renews it, so none ends later than this, or than twice its time.
_VOID_BEYOND_S = 60.0
# How long a session of the work may wait for its client within a transaction.
FROZEN_S = 10.0


def holder(port: int) -> str:
    """Our place, whichever process runs there: after a crash the next one need not wait."""
    return f"{socket.gethostname()}:{port}"


class LeaderLease:
    """`run_as_leader(work)` runs `work` while, and only while, we hold the lease."""

    def __init__(
        self, pool: db.Pool, *, name: str, holder: str, lasts_s: float, works_as: str = ""
    ) -> None:
        """`works_as` is what the sessions that do the work are called in the database."""
        self._pool, self._name, self._holder, self._lasts_s = pool, name, holder, lasts_s
        self._works_as = works_as
        self._fence: int | None = None
        self._working = False
        self._sure_until = 0.0
        self._lost = asyncio.Event()
        # At the start we take over from our predecessor of the same name; later we wait.
        self._heir = True
        self._other: tuple[str, datetime] | None = None
        self._unavailable: str | None = None
        self._log = log.get(name)

    def problem(self) -> str | None:
        """Return what is wrong; to stand by is not, as another instance works."""
        if self._fence is not None:
            return None if self._working else "it has just become the leader"
        if self._other is not None:
            return None
        return self._unavailable or "it is not known yet which instance is the leader"

    def started(self) -> None:
        """From now on the work reports its own problems."""
        self._working = True

    def note(self) -> str | None:
        if self._fence is not None or self._other is None:
            return None
        who, until = self._other
        return f"standby: {who} is active; its lease ends {until:%H:%M:%S}Z unless renewed"

    def is_active(self) -> bool:
        """Whether we surely hold the lease; not after its time has passed."""
        return self._fence is not None and time.monotonic() < self._sure_until

    async def run_as_leader(self, work: Callable[[], Awaitable[None]]) -> NoReturn:
        ACTIVE.labels(name=self._name).set_function(lambda: self._fence is not None)
        while True:
            await self.acquire()
            try:
                await self._while_mine(work)
            finally:
                await self._give_back()

    async def confirm(self) -> None:
        """Return only while we hold the lease; who lost it waits until it is cancelled."""
        backoff = Backoff(cap_s=2.0)
        while time.monotonic() >= self._sure_until:
            if self._lost.is_set():
                await asyncio.Event().wait()
            try:
                await self.renew()
            except db.UNAVAILABLE:
                await backoff.wait()

    async def acquire(self) -> None:
        backoff = Backoff(cap_s=2.0)
        while True:
            began = time.monotonic()
            try:
                self._fence = await self._take()
            except db.UNAVAILABLE as error:
                self._unavailable = f"the leader cannot be looked up: {db.first_line(error)}"
                await backoff.wait()
                continue
            if self._fence is not None:
                self._sure_until = began + self._lasts_s
                self._lost.clear()
                self._heir = False
                self._log.info("turn.taken", count=self._fence)
                return
            await asyncio.sleep(min(_LOOK_S, self._lasts_s / _RENEWALS))

    async def _while_mine(self, work: Callable[[], Awaitable[None]]) -> None:
        working = asyncio.ensure_future(work())
        losing = asyncio.create_task(self._until_lost())
        try:
            await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended_by_itself = working.done()
            await _end(working, losing)
        if ended_by_itself:
            working.result()
        if losing.done() and not losing.cancelled():
            losing.result()

    async def _until_lost(self) -> None:
        while not self._lost.is_set():
            try:
                await self.renew()
            except db.UNAVAILABLE as error:
                self._log.warning("turn.database_away", error=db.first_line(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lasts_s / _RENEWALS):
                    await self._lost.wait()
        self._log.warning("turn.lost", reason="another gateway has taken over")

    async def renew(self) -> None:
        began = time.monotonic()
        async with db.autocommit(self._pool) as tx:
            mine = await renew(tx, self._name, self._holder, self._fence, lasts_s=self._lasts_s)
            ended = await end_frozen(tx, self._works_as) if mine and self._works_as else 0
        if ended:
            self._log.warning("turn.frozen_sessions_ended", count=ended)
        if mine:
            self._sure_until = began + self._lasts_s
        else:
            self._lost.set()

    async def _take(self) -> int | None:
        async with db.autocommit(self._pool) as tx:
            fence = await take(tx, self._name, self._holder, lasts_s=self._lasts_s, heir=self._heir)
            self._other = None if fence is not None else await held_by(tx, self._name)
        self._unavailable = None
        return fence

    async def _give_back(self) -> None:
        fence, self._fence, self._sure_until = self._fence, None, 0.0
        self._working = False
        with contextlib.suppress(*db.UNAVAILABLE, TimeoutError):
            async with asyncio.timeout(_END_ROUND_S), db.autocommit(self._pool) as tx:
                await give_back(tx, self._name, self._holder, fence)


async def _end(*tasks: "asyncio.Future[Any]") -> None:
    """A library may lose a cancellation while it handles an error of its own: it is repeated."""
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_END_ROUND_S)


async def take(
    tx: db.Connection, name: str, holder: str, *, lasts_s: float, heir: bool = False
) -> int | None:
    """Return our fencing token, or None if another holds it; an heir takes over its own name's.

    A lease that lasts longer than any was taken by a clock that has been set back: it is void.
    """
    fence: int | None = await db.fetch_value(
        tx,
        """
        insert into leases as l (name, holder, taken_at, expires_at)
        values (%s, %s, fn_now(), fn_now() + %s * interval '1 second')
        on conflict on constraint leases_pkey do update set
          holder = excluded.holder, fence = l.fence + 1,
          taken_at = excluded.taken_at, expires_at = excluded.expires_at
        where l.expires_at <= fn_now() or (%s and l.holder = excluded.holder)
          or l.expires_at > fn_now() + %s * interval '1 second'
        returning fence
        """,
        name,
        holder,
        lasts_s,
        heir,
        max(2 * lasts_s, _VOID_BEYOND_S),
    )
    return fence


async def renew(
    tx: db.Connection, name: str, holder: str, fence: int | None, *, lasts_s: float
) -> bool:
    """Return False if another has taken it; a late renewal is fine until then."""
    cursor = await tx.execute(
        """
        update leases set expires_at = fn_now() + %s * interval '1 second'
        where name = %s and holder = %s and fence = %s
        """,
        (lasts_s, name, holder, fence),
    )
    return cursor.rowcount > 0


async def end_frozen(tx: db.Connection, works_as: str, *, frozen_s: float = FROZEN_S) -> int:
    """How many sessions were ended that wait within a transaction for a client that is frozen."""
    ended: int = await db.fetch_value(
        tx,
        """
        select count(pg_terminate_backend(pid)) from pg_stat_activity
        where usename = current_user and split_part(application_name, ' ', 1) = %s
          and pid <> pg_backend_pid()
          and xact_start is not null and wait_event_type = 'Client'
          and greatest(query_start, state_change) < clock_timestamp() - %s * interval '1 second'
        """,
        works_as,
        frozen_s,
    )
    return ended


async def give_back(tx: db.Connection, name: str, holder: str, fence: int | None) -> None:
    await tx.execute(
        "update leases set expires_at = fn_now() where name = %s and holder = %s and fence = %s",
        (name, holder, fence),
    )


async def held_by(tx: db.Connection, name: str) -> tuple[str, datetime] | None:
    rows = await db.fetch_all(tx, "select holder, expires_at from leases where name = %s", name)
    return (rows[0][0], rows[0][1]) if rows else None
