"""The forwarder: claim, mark, send and settle, one tenant's batch at a time."""

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import AsyncIterator, Iterable, Sequence

import prometheus_client

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.sync import pace, store, verdict, watch
from farmiq.edge.sync.cloud import MOST_BYTES, Cloud
from farmiq.edge.sync.pace import Pace, Plan
from farmiq.edge.sync.store import Again, Claimed, Sending, Tenant
from farmiq.plumbing import db, ids, log

NAME = "edge-sync-forwarder"
# How much of a lease may pass before it is renewed (003).
RENEW_AT = 0.6

SETTLED = prometheus_client.Counter(
    "farmiq_sync_events_total", "Events settled by the forwarder", ["outcome"]
)
RECLAIMED = prometheus_client.Counter(
    "farmiq_sync_reclaimed_total", "Events claimed again or freed because a lease had ended"
)
LOST = prometheus_client.Counter(
    "farmiq_sync_leases_lost_total", "Events whose lease ended before they were settled"
)
RENEWED = prometheus_client.Counter("farmiq_sync_leases_renewed_total", "Leases renewed")


class Forwarder:
    """One of any number: what it holds is its own by lease, what it lost it leaves alone."""

    def __init__(self, settings: EdgeSettings, pool: db.Pool, cloud: Cloud) -> None:
        self._settings, self._pool, self._cloud = settings, pool, cloud
        self._me = f"{socket.gethostname()}:{os.getpid()}:{ids.new()}"
        self._paces: dict[str, Pace] = {}
        self._log = log.get(NAME)
        self.delivered = 0
        # Set while whole batches go out: then a second lane claims while the first one's travels.
        self.draining = asyncio.Event()

    async def forward_once(self) -> int:
        """Once for every tenant that is owed something; returns how many events were claimed."""
        async with db.transaction(self._pool) as tx:
            tenants = await store.owing(tx)
        # Replicas start with different tenants, so that none waits for all the others'.
        random.shuffle(tenants)
        forwarded = [await self._forward(tenant) for tenant in tenants]
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
                await store.set_level(tx, tenant.tenant_id, before=tenant.level, level=0)
        crash.here("sync.after_claim")
        if not rows:
            return 0, False
        RECLAIMED.inc(sum(row.reclaimed for row in rows))
        async with self._renewing(rows):
            whole = await self._send_all(tenant, plan, first) and len(rows) == asked
            if whole:
                await self._let_pass(tenant)
        return len(rows), whole

    async def _send_all(self, tenant: Tenant, plan: Plan[Claimed], first: list[Sending]) -> bool:
        """Whether the cloud could be reached; if not, what was not sent yet is handed back."""
        await self._hand_back(plan.back)
        away = await self._deliver(tenant.tenant_id, first) if first else None
        waiting = list(plan.parts)
        while waiting and away is None:
            part = waiting.pop(0)
            async with db.transaction(self._pool) as tx:
                mine = await store.start_sending(
                    tx, part, claimed_by=self._me, lease_s=self._settings.sync_lease_s
                )
            LOST.inc(len(part) - len(mine))
            crash.here("sync.after_sending")
            away = await self._deliver(tenant.tenant_id, mine) if mine else None
        if away is not None:
            await self._hand_back([row for part in waiting for row in part])
        return away is None

    async def _hand_back(self, rows: Sequence[Claimed]) -> None:
        if rows:
            async with db.transaction(self._pool) as tx:
                await store.hand_back(tx, rows, claimed_by=self._me)

    async def _deliver(self, tenant_id: str, rows: Sequence[Sending]) -> verdict.Away | None:
        """Send and settle; an outage ends it, and is returned."""
        batch_id = f"batch-{ids.new()}"
        answer = await self._cloud.send(batch_id, tenant_id, [row.event() for row in rows])
        match verdict.judge(answer, count=len(rows)):
            case verdict.Delivered():
                crash.here("sync.after_answer")
                await self._acked(tenant_id, rows, batch_id)
                return None
            case verdict.Away() as away:
                await self._away(tenant_id, rows, away)
                return away
            case verdict.Refused(reasons):
                await self._refused(tenant_id, rows, reasons)
                rest = [row for index, row in enumerate(rows) if index not in reasons]
                return await self._deliver(tenant_id, rest) if rest else None
            case verdict.Failed() as failed if len(rows) == 1:
                await self._failed(tenant_id, rows[0], failed)
                return None
            case verdict.Failed():
                return await self._halved(tenant_id, rows)

    async def _halved(self, tenant_id: str, rows: Sequence[Sending]) -> verdict.Away | None:
        first, second = pace.halves(rows)
        away = await self._deliver(tenant_id, first)
        if away is None:
            return await self._deliver(tenant_id, second)
        await self._again(second, away.code, away.message, outage=True)
        return away

    async def _acked(self, tenant_id: str, rows: Sequence[Sending], batch_id: str) -> None:
        async with db.transaction(self._pool) as tx:
            count = await store.acked(tx, rows, claimed_by=self._me)
            ended = await store.note_success(
                tx,
                tenant_id,
                last=rows[-1],
                batch_id=batch_id,
                outage_codes=verdict.OUTAGE_CODES,
            )
            if ended:
                await alerts.close(tx, kind=watch.NOT_LET_IN, subject=tenant_id, by=NAME)
            crash.here("sync.before_settle_commit")
        self._paces[tenant_id] = self._paces[tenant_id].faster()
        self.delivered += count
        SETTLED.labels(outcome="acked").inc(count)
        LOST.inc(len(rows) - count)

    async def _away(self, tenant_id: str, rows: Sequence[Sending], away: verdict.Away) -> None:
        async with db.transaction(self._pool) as tx:
            pause_s = verdict.pause_s(
                await store.failures(tx, tenant_id),
                longest_s=self._settings.sync_breaker_s,
                retry_after_s=away.retry_after_s,
                obeyed_s=self._settings.sync_cap_s,
            )
            await store.note_outage(tx, tenant_id, pause_s=pause_s)
            if verdict.needs_a_person(away.code):
                await alerts.raise_(tx, watch.not_let_in(tenant_id, away))
        await self._again(rows, away.code, away.message, outage=True)
        self._paces[tenant_id] = self._paces[tenant_id].slower()
        self._log.warning(
            "sync.cloud_away", code=away.code, error=away.message, wait_s=pause_s, count=len(rows)
        )

    async def _refused(
        self, tenant_id: str, rows: Sequence[Sending], reasons: dict[int, str]
    ) -> None:
        blamed = {rows[index]: reason for index, reason in reasons.items()}
        await self._aside(tenant_id, blamed, reason=verdict.REJECTED, code="HTTP_400")

    async def _failed(self, tenant_id: str, row: Sending, failed: verdict.Failed) -> None:
        if self._attempts(row, outage=False) < self._settings.sync_max_attempts:
            await self._again([row], failed.code, failed.message, outage=False)
            return
        await self._aside(
            tenant_id, {row: failed.message}, reason=verdict.MAX_ATTEMPTS, code=failed.code
        )

    async def _aside(
        self, tenant_id: str, rows: dict[Sending, str], *, reason: str, code: str
    ) -> None:
        async with db.transaction(self._pool) as tx:
            count = await store.set_aside(tx, rows, claimed_by=self._me, reason=reason, code=code)
            if count:
                await alerts.raise_(tx, watch.set_aside(tenant_id, reason), count=count)
        SETTLED.labels(outcome="dlq").inc(count)
        for row in rows:
            self._log.error(
                "sync.set_aside",
                event_id=str(row.id),
                event_type=row.event_type,
                trace_id=row.trace_id,
                code=code,
            )

    async def _again(
        self, rows: Iterable[Sending], code: str, message: str, *, outage: bool
    ) -> None:
        backed_off = {row: self._back_off(row, outage=outage) for row in rows}
        async with db.transaction(self._pool) as tx:
            count = await store.retry(
                tx, backed_off, claimed_by=self._me, code=code, message=message
            )
        SETTLED.labels(outcome="again").inc(count)

    def _back_off(self, row: Sending, *, outage: bool) -> Again:
        attempts = self._attempts(row, outage=outage)
        delay_ms = verdict.backoff_ms(
            attempts,
            base_s=self._settings.sync_base_s,
            cap_s=self._settings.sync_cap_s,
            jitter_ms=random.random() * 1000,  # noqa: S311 - jitter, not a secret
        )
        return Again(attempts, delay_ms)

    def _attempts(self, row: Sending, *, outage: bool) -> int:
        return verdict.attempts_after(
            row.attempt_count,
            most=self._settings.sync_max_attempts,
            outage=outage,
            last_code=row.last_error_code,
        )

    def _pace(self, tenant: Tenant) -> Pace:
        """A forwarder that has just started does not know better than the breaker."""
        most = self._settings.sync_batch
        known = self._paces.get(tenant.tenant_id, Pace(most, most))
        if tenant.failures:
            known = Pace(most, min(known.now, pace.PROBE_EVENTS))
        self._paces[tenant.tenant_id] = known
        return known

    async def _let_pass(self, tenant: Tenant) -> None:
        """While a backlog drains, what is new gets a priority above it (C-92)."""
        async with db.transaction(self._pool) as tx:
            waiting = await store.waiting_at(
                tx, tenant.tenant_id, level=tenant.level, most=pace.BACKLOG_ROWS + 1
            )
            level = pace.next_level(tenant.level, waiting_at_level=waiting)
            if level != tenant.level:
                await store.set_level(tx, tenant.tenant_id, before=tenant.level, level=level)

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
