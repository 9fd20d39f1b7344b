"""The forwarder: claim, mark, send and settle, one tenant's batch at a time."""

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import prometheus_client

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge.sync import pace, store, tenants, verdict
from farmiq.edge.sync.cloud import MOST_BYTES, Cloud
from farmiq.edge.sync.pace import Pace, Plan
from farmiq.edge.sync.settling import LOST, Settling
from farmiq.edge.sync.store import Claimed, Sending
from farmiq.edge.sync.tenants import Tenant
from farmiq.plumbing import db, ids, log

NAME = "edge-sync-forwarder"
# How much of a lease may pass before it is renewed (003).
RENEW_AT = 0.6
# One event alone on which the cloud fails says nothing of the cloud; two in a row do, and one
# after an outage that nothing has ended yet.
BROKEN_AFTER = 2

RECLAIMED = prometheus_client.Counter(
    "farmiq_sync_reclaimed_total", "Events claimed again or freed because a lease had ended"
)
RENEWED = prometheus_client.Counter("farmiq_sync_leases_renewed_total", "Leases renewed")


@dataclass(slots=True)
class Trip:
    """A tenant's turn, and what it has shown of the cloud.

    `reached` if it answered for an event; `working` if it took one, or said why not; `failed`
    counts the events on which alone it failed.
    """

    tenant: Tenant
    search_until: float
    reached: bool = False
    working: bool = False
    failed: int = 0

    @property
    def tenant_id(self) -> str:
        return self.tenant.tenant_id

    def has_time(self) -> bool:
        return time.monotonic() < self.search_until


# What could not be settled, and the outage that is why.
Left = tuple[list[Sending], verdict.Away | None]


class Forwarder:
    """One of any number: what it holds is its own by lease, what it lost it leaves alone."""

    def __init__(self, settings: EdgeSettings, pool: db.Pool, cloud: Cloud) -> None:
        self._settings, self._pool, self._cloud = settings, pool, cloud
        self._me = f"{socket.gethostname()}:{os.getpid()}:{ids.new()}"
        self._settling = Settling(settings, pool, me=self._me, name=NAME)
        self._paces: dict[str, Pace] = {}
        self._log = log.get(NAME)
        self.delivered = 0
        # Set while whole batches go out: then a second lane claims while the first one's travels.
        self.draining = asyncio.Event()

    async def forward_once(self) -> int:
        """Once for every tenant that is owed something; returns how many events were claimed."""
        async with db.transaction(self._pool) as tx:
            owing = await tenants.owing(tx)
        # Replicas start with different tenants, so that none waits for all the others'.
        random.shuffle(owing)
        forwarded = [await self._forward(tenant) for tenant in owing]
        if any(whole for _, whole in forwarded):
            self.draining.set()
        else:
            self.draining.clear()
        return sum(count for count, _ in forwarded)

    async def _forward(self, tenant: Tenant) -> tuple[int, bool]:
        """(events claimed, whether that was a whole batch and was delivered)."""
        asked = self._pace(tenant).now
        async with db.transaction(self._pool) as tx:
            rows = await store.claim(
                tx,
                tenant.tenant_id,
                claimed_by=self._me,
                most=asked,
                few=pace.SUSPECTS,
                lease_s=self._settings.sync_lease_s,
            )
            plan = pace.plan(rows, most_bytes=MOST_BYTES, outage_codes=verdict.OUTAGE_CODES)
            first = await store.contents(tx, plan.at_once)
            if tenant.level and len(rows) < asked:
                await tenants.set_level(tx, tenant.tenant_id, before=tenant.level, level=0)
        if not rows:
            return 0, False
        crash.here("sync.after_claim")
        RECLAIMED.inc(sum(row.reclaimed for row in rows))
        async with self._renewing(rows):
            trip = Trip(tenant, search_until=time.monotonic() + self._settings.sync_timeout_s)
            whole = await self._send_all(trip, plan, first) and len(rows) == asked
            if whole:
                await self._let_pass(tenant)
        return len(rows), whole

    async def _send_all(self, trip: Trip, plan: Plan[Claimed], first: list[Sending]) -> bool:
        """Whether the cloud could be reached; if not, what was not sent yet is handed back."""
        await self._hand_back(plan.back)
        away = await self._deliver(trip, first) if first else None
        waiting = list(plan.parts)
        while waiting and away is None:
            part = waiting.pop(0)
            async with db.transaction(self._pool) as tx:
                mine = await store.start_sending(
                    tx, part, claimed_by=self._me, lease_s=self._settings.sync_lease_s
                )
            LOST.inc(len(part) - len(mine))
            crash.here("sync.after_sending")
            away = await self._deliver(trip, mine) if mine else None
        if away is not None:
            await self._hand_back([row for part in waiting for row in part])
        return away is None

    async def _hand_back(self, rows: Sequence[Claimed]) -> None:
        if rows:
            async with db.transaction(self._pool) as tx:
                await store.hand_back(tx, rows, claimed_by=self._me)

    async def _deliver(self, trip: Trip, rows: Sequence[Sending]) -> verdict.Away | None:
        """Send and settle; an outage ends it, and is returned."""
        search = trip.tenant.failures == 0
        left, away = await self._try(trip, rows, search=search)
        if away is not None and away.code == verdict.CLOUD_BROKEN:
            left, away = await self._compare(trip, left, away, search=search)
        if away is not None:
            await self._settling.away(trip.tenant_id, left, away)
            self._paces[trip.tenant_id] = self._paces[trip.tenant_id].slower()
        return away

    async def _try(self, trip: Trip, rows: Sequence[Sending], *, search: bool) -> Left:
        """Send, and settle all but what meets an outage: that is returned, with the outage.

        With `search` an outage is doubted first: it may be about one event.
        """
        batch_id = f"batch-{ids.new()}"
        answer = await self._cloud.send(batch_id, trip.tenant_id, [row.event() for row in rows])
        match verdict.judge(answer, count=len(rows)):
            case verdict.Delivered():
                crash.here("sync.after_answer")
                self.delivered += await self._settling.acked(trip.tenant_id, rows, batch_id)
                self._paces[trip.tenant_id] = self._paces[trip.tenant_id].faster()
                trip.reached = trip.working = True
                return [], None
            case verdict.Away() as away:
                return await self._doubted(trip, rows, away, search=search)
            case verdict.Refused(reasons):
                await self._settling.refused(trip.tenant_id, rows, reasons)
                trip.reached = trip.working = True
                rest = [row for index, row in enumerate(rows) if index not in reasons]
                return await self._try(trip, rest, search=search) if rest else ([], None)
            case verdict.Failed() as failed if len(rows) == 1:
                await self._settling.failed(trip.tenant_id, rows[0], failed)
                trip.reached = True
                trip.failed += 1
                return [], None if trip.working else failed.of_all()
            case verdict.Failed():
                return await self._halved(trip, rows, search=search)

    async def _compare(
        self, trip: Trip, left: list[Sending], away: verdict.Away, *, search: bool
    ) -> Left:
        """The cloud failed on one event: on one from the other end too? Then it is broken.

        Else halving goes on. So a cloud that fails on everything costs a dozen requests and a
        pause, and events of which neighbours are as bad still do not count as an outage.
        """
        if not left:
            enough = BROKEN_AFTER if trip.tenant.failures == 0 else 1
            return [], away if trip.failed >= enough else None
        *others, last = left
        again, met = await self._try(trip, [last], search=search)
        if not trip.working:
            return [*others, *again], met or away
        return await self._try(trip, others, search=search) if others else (again, met)

    async def _doubted(
        self, trip: Trip, rows: Sequence[Sending], away: verdict.Away, *, search: bool
    ) -> Left:
        if len(rows) == 1:
            return await self._alone(trip, rows[0], away)
        if search and verdict.may_be_an_event(away) and trip.has_time():
            return await self._search(trip, rows)
        return list(rows), away

    async def _halved(self, trip: Trip, rows: Sequence[Sending], *, search: bool) -> Left:
        first, second = pace.halves(rows)
        left, away = await self._try(trip, first, search=search)
        if away is not None:
            return [*left, *second], away
        return await self._try(trip, second, search=search)

    async def _search(self, trip: Trip, rows: Sequence[Sending]) -> Left:
        """If one half gets through, the other holds what the way minds; if none, it is away."""
        first, second = pace.halves(rows)
        left, away = await self._try(trip, first, search=trip.reached)
        rest, gone = await self._try(trip, second, search=away is None or trip.reached)
        if away is not None and gone is None:
            left, away = await self._try(trip, left, search=True)
        return [*left, *rest], away or gone

    async def _alone(self, trip: Trip, row: Sending, away: verdict.Away) -> Left:
        """One event meets an outage: its own if others get through, else everybody's."""
        own = verdict.may_be_an_event(away) and (trip.reached or await self._passed_by(trip, row))
        if not own:
            return [row], away
        # The next one has to show again that the cloud is there: an outage may begin any moment.
        trip.reached = False
        failed = verdict.Failed(f"{verdict.ALONE}{away.code}", away.message)
        await self._settling.failed(trip.tenant_id, row, failed)
        return [], None

    async def _passed_by(self, trip: Trip, row: Sending) -> bool:
        """It has failed alone before, and others have got through since."""
        if not verdict.is_alone(row.last_error_code):
            return False
        async with db.transaction(self._pool) as tx:
            return await tenants.acked_since(tx, trip.tenant_id, row.last_attempt_at)

    def _pace(self, tenant: Tenant) -> Pace:
        """A forwarder that has just started does not know better than the breaker."""
        most = self._settings.sync_batch
        known = self._paces.get(tenant.tenant_id, Pace(most, most))
        if tenant.failures:
            known = Pace(most, min(known.now, pace.PROBE_EVENTS))
        self._paces[tenant.tenant_id] = known
        return known

    async def _let_pass(self, tenant: Tenant) -> None:
        """While a backlog drains, what is new gets a priority above it (C-92).

        So does what came while we paused and could not know that the cloud was back (D-290).
        """
        async with db.transaction(self._pool) as tx:
            waiting = await tenants.waiting_at(
                tx, tenant.tenant_id, level=tenant.level, most=pace.BACKLOG_ROWS + 1
            )
            level = pace.next_level(tenant.level, waiting_at_level=waiting)
            if level != tenant.level:
                await tenants.set_level(tx, tenant.tenant_id, before=tenant.level, level=level)
            if level > tenant.level == 0:
                await tenants.raise_recent(
                    tx,
                    tenant.tenant_id,
                    level=level,
                    # The pause, and as much again for the request that ended it.
                    recent_s=2 * self._settings.sync_breaker_s,
                    limit=pace.RECENT_ROWS,
                )

    @contextlib.asynccontextmanager
    async def _renewing(self, rows: Sequence[Claimed]) -> AsyncIterator[None]:
        """What takes longer than most of a lease keeps it (OB-20)."""
        renewal = asyncio.create_task(self._renew_for_ever(rows))
        try:
            yield
        finally:
            renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewal

    async def _renew_for_ever(self, rows: Sequence[Claimed]) -> None:
        lease_s = self._settings.sync_lease_s
        while True:
            await asyncio.sleep(lease_s * RENEW_AT)
            try:
                async with db.transaction(self._pool) as tx:
                    count = await store.renew(tx, rows, claimed_by=self._me, lease_s=lease_s)
            except db.UNAVAILABLE as error:
                # The fence holds without us: what we lose, another forwarder delivers.
                self._log.warning("sync.not_renewed", error=db.first_line(error))
                continue
            RENEWED.inc(count)
            crash.here("sync.after_renewal")
