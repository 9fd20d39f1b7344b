"""The forwarder: claims, sends and settles one batch of one tenant at a time."""

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from prometheus_client import Counter

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.sync import monitor, rules, store
from farmiq.edge.sync.cloud import MAX_BATCH_BYTES, Cloud
from farmiq.edge.sync.rules import BatchSizer, Claimed, Failure, Plan, Sending, Tenant
from farmiq.plumbing import db, ids, log, tracing
from farmiq.plumbing.backoff import chance

NAME = "edge-sync-forwarder"
# How much of a lease may pass before it is renewed (003).
RENEW_AT = 0.6
# One event alone on which the cloud fails says nothing of the cloud; two in a row do, and one
# after an outage that nothing has ended yet.
BROKEN_AFTER = 2

SETTLED = Counter("farmiq_sync_events_total", "Events settled by the forwarder", ["outcome"])
LOST = Counter("farmiq_sync_leases_lost_total", "Events whose lease ended before they were settled")
RECLAIMED = Counter(
    "farmiq_sync_reclaimed_total", "Events claimed again or freed because a lease had ended"
)
RENEWED = Counter("farmiq_sync_leases_renewed_total", "Leases renewed")


def backoff_of(settings: EdgeSettings) -> rules.Backoff:
    return rules.Backoff(
        base_s=settings.sync_base_s,
        cap_s=settings.sync_cap_s,
        breaker_s=settings.sync_breaker_s,
        max_attempts=settings.sync_max_attempts,
    )


class Settler:
    """Writes what a response means for the rows of one forwarder, one transaction each.

    Every write names the claim: rows whose lease was lost are not changed.
    """

    def __init__(self, settings: EdgeSettings, pool: db.Pool, *, me: str) -> None:
        self._backoff, self._pool, self._me = backoff_of(settings), pool, me
        self._log = log.get(NAME)

    async def acked(
        self, tenant_id: str, rows: Sequence[Sending], batch_id: str, *, started_ns: int
    ) -> int:
        """Mark the rows as delivered; returns how many were still claimed by us."""
        async with db.transaction(self._pool) as tx:
            count = await store.acked(tx, rows, claimed_by=self._me)
            ended = await store.record_success(
                tx,
                tenant_id,
                last=rows[-1],
                batch_id=batch_id,
            )
            if ended:
                await alerts.close(tx, kind=monitor.ACCESS_DENIED, subject=tenant_id, by=NAME)
            crash.here("sync.before_settle_commit")
        named = [(row.id, row.event_type, row.trace_id) for row in rows]
        log.events(self._log, "sync.delivered", named, batch_id=batch_id)
        tracing.record(tracing.FORWARD, NAME, named, started_ns=started_ns, batch_id=batch_id)
        SETTLED.labels(outcome="acked").inc(count)
        LOST.inc(len(rows) - count)
        return count

    async def unavailable(
        self, tenant_id: str, rows: Sequence[Sending], outage: rules.Unavailable
    ) -> None:
        """An outage: all of them again later, and the tenant pauses."""
        again = {row: self._backoff.after_outage(row, outage, chance=chance()) for row in rows}
        async with db.transaction(self._pool) as tx:
            settled = await store.settle_failed(tx, again, claimed_by=self._me)
            pause_s = self._backoff.pause_s(await store.failures(tx, tenant_id), outage)
            await store.record_outage(
                tx, tenant_id, pause_s=pause_s, code=outage.code, message=outage.message
            )
            if rules.needs_operator(outage.code):
                await alerts.raise_(tx, monitor.access_denied_alert(tenant_id, outage))
        SETTLED.labels(outcome="again").inc(len(settled))
        self._log.warning(
            "sync.cloud_away",
            code=outage.code,
            error=outage.message,
            wait_s=pause_s,
            count=len(rows),
        )

    async def rejected(
        self, tenant_id: str, rows: Sequence[Sending], reasons: dict[int, str]
    ) -> None:
        """The cloud says why it never takes these: to the dlq."""
        failures = {}
        for index, reason in reasons.items():
            attempts = rows[index].attempt_count + 1
            failures[rows[index]] = Failure(attempts, "HTTP_400", reason, dlq_reason=rules.REJECTED)
        await self._settle(tenant_id, failures)

    async def put_off(
        self, tenant_id: str, rows: Sequence[Sending], reasons: dict[int, str]
    ) -> None:
        """A cloud of an earlier version does not know these: they wait until it is upgraded."""
        again = {}
        for index, reason in reasons.items():
            outage = rules.Unavailable(rules.CLOUD_OLDER, reason)
            again[rows[index]] = self._backoff.after_outage(rows[index], outage, chance=chance())
        await self._settle(tenant_id, again)
        self._log.warning("sync.cloud_older", count=len(again), error=next(iter(reasons.values())))

    async def failed(self, tenant_id: str, row: Sending, failed: rules.Transient) -> None:
        """The cloud fails on this event alone."""
        failure = self._backoff.after_failure(row, failed.code, failed.message, chance=chance())
        await self._settle(tenant_id, {row: failure})

    async def _settle(self, tenant_id: str, failures: dict[Sending, Failure]) -> None:
        """Settle rows of which each is given up for the same reason, or none is."""
        async with db.transaction(self._pool) as tx:
            settled = await store.settle_failed(tx, failures, claimed_by=self._me)
            reason = next(iter(failures.values())).dlq_reason
            if reason and settled:
                alert = monitor.dead_letter_alert(tenant_id, reason)
                await alerts.raise_(tx, alert, count=len(settled))
        SETTLED.labels(outcome="dlq" if reason else "again").inc(len(settled))
        for row, failure in failures.items() if reason else ():
            self._log.error(
                "sync.set_aside",
                event_id=str(row.id),
                event_type=row.event_type,
                trace_id=row.trace_id,
                code=failure.code,
            )


@dataclass(slots=True)
class DeliveryRun:
    """One claim of one tenant, and what it has shown about the cloud.

    `reached`: the cloud answered for an event. `working`: it accepted one, or said why not.
    `failed` counts the events that failed when they were sent alone.
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


# The rows that could not be settled, and the outage that is the reason.
Unsettled = tuple[list[Sending], rules.Unavailable | None]


class Forwarder:
    """One of any number of forwarders; it changes only rows that it holds under a lease."""

    def __init__(self, settings: EdgeSettings, pool: db.Pool, cloud: Cloud) -> None:
        self._settings, self._pool, self._cloud = settings, pool, cloud
        self._me = f"{socket.gethostname()}:{os.getpid()}:{ids.new()}"
        self._settler = Settler(settings, pool, me=self._me)
        self._sizers: dict[str, BatchSizer] = {}
        self._log = log.get(NAME)
        self.delivered = 0
        # Set while batches are full: a second lane then claims while the first one sends.
        self.draining = asyncio.Event()

    async def forward_once(self) -> int:
        """Send one batch of every tenant with pending events; returns how many were claimed."""
        async with db.transaction(self._pool) as tx:
            pending = await store.pending_tenants(tx)
        # Replicas start with different tenants, so that no tenant waits for all others.
        random.shuffle(pending)
        forwarded = [await self._forward(tenant) for tenant in pending]
        if any(whole for _, whole in forwarded):
            self.draining.set()
        else:
            self.draining.clear()
        return sum(count for count, _ in forwarded)

    async def _forward(self, tenant: Tenant) -> tuple[int, bool]:
        """(events claimed, whether that was a full batch and was delivered)."""
        batch_size = self._sizer(tenant).size
        async with db.transaction(self._pool) as tx:
            rows = await store.claim(
                tx,
                tenant.tenant_id,
                claimed_by=self._me,
                limit=batch_size,
                few=rules.SUSPECTS,
                lease_s=self._settings.sync_lease_s,
            )
            plan = rules.plan(rows, max_bytes=MAX_BATCH_BYTES)
            first = await store.contents(tx, plan.first)
            if tenant.level and len(rows) < batch_size:
                await store.set_level(tx, tenant.tenant_id, before=tenant.level, level=0)
        if not rows:
            return 0, False
        crash.here("sync.after_claim")
        RECLAIMED.inc(sum(row.reclaimed for row in rows))
        async with self._renewing(rows):
            run = DeliveryRun(tenant, search_until=time.monotonic() + self._settings.sync_timeout_s)
            whole = await self.send_all(run, plan, first) and len(rows) == batch_size
            if whole:
                await self._prioritise_live(tenant)
        return len(rows), whole

    async def send_all(self, run: DeliveryRun, plan: Plan, first: list[Sending]) -> bool:
        """Whether the cloud was reached; if not, what was not sent yet is released."""
        await self._release(plan.release)
        outage = await self._deliver(run, first) if first else None
        waiting = list(plan.parts)
        while waiting and outage is None:
            part = waiting.pop(0)
            async with db.transaction(self._pool) as tx:
                mine = await store.start_sending(
                    tx, part, claimed_by=self._me, lease_s=self._settings.sync_lease_s
                )
            LOST.inc(len(part) - len(mine))
            crash.here("sync.after_sending")
            outage = await self._deliver(run, mine) if mine else None
        if outage is not None:
            await self._release([row for part in waiting for row in part])
        return outage is None

    async def _release(self, rows: Sequence[Claimed]) -> None:
        if rows:
            async with db.transaction(self._pool) as tx:
                await store.release(tx, rows, claimed_by=self._me)

    async def _deliver(self, run: DeliveryRun, rows: Sequence[Sending]) -> rules.Unavailable | None:
        """Send and settle; returns the outage that ended it, or None."""
        search = run.tenant.failures == 0
        left, outage = await self._try(run, rows, search=search)
        if outage is not None and outage.code == rules.CLOUD_BROKEN:
            left, outage = await self._confirm_broken(run, left, outage, search=search)
        if outage is not None:
            await self._settler.unavailable(run.tenant_id, left, outage)
            self._sizers[run.tenant_id] = self._sizers[run.tenant_id].shrink()
        return outage

    async def _try(self, run: DeliveryRun, rows: Sequence[Sending], *, search: bool) -> Unsettled:
        """Send and settle; returns what met an outage, with the outage.

        With `search` the batch is split first: the outage may be about one event.
        """
        batch_id, started_ns = f"batch-{ids.new()}", time.time_ns()
        answer = await self._cloud.send(batch_id, run.tenant_id, [row.event() for row in rows])
        match rules.classify_response(answer, count=len(rows)):
            case rules.Delivered():
                crash.here("sync.after_answer")
                self.delivered += await self._settler.acked(
                    run.tenant_id, rows, batch_id, started_ns=started_ns
                )
                self._sizers[run.tenant_id] = self._sizers[run.tenant_id].grow()
                run.reached = run.working = True
                return [], None
            case rules.Unavailable() as outage:
                return await self._suspect(run, rows, outage, search=search)
            case rules.Permanent(reasons, cloud_is_older):
                settle = self._settler.put_off if cloud_is_older else self._settler.rejected
                await settle(run.tenant_id, rows, reasons)
                run.reached = run.working = True
                rest = [row for index, row in enumerate(rows) if index not in reasons]
                return await self._try(run, rest, search=search) if rest else ([], None)
            case rules.Transient() as failed if len(rows) == 1:
                await self._settler.failed(run.tenant_id, rows[0], failed)
                run.reached = True
                run.failed += 1
                return [], None if run.working else failed.as_outage()
            case rules.Transient():
                return await self._bisect(run, rows, search=search)

    async def _confirm_broken(
        self, run: DeliveryRun, left: list[Sending], outage: rules.Unavailable, *, search: bool
    ) -> Unsettled:
        """The cloud failed on one event: try one from the other end; if it fails too, it is broken.

        Otherwise bisecting goes on. So a cloud that fails on everything costs a dozen requests and
        a pause, and several bad events next to each other do not count as an outage.
        """
        if not left:
            enough = BROKEN_AFTER if run.tenant.failures == 0 else 1
            return [], outage if run.failed >= enough else None
        *others, last = left
        again, met = await self._try(run, [last], search=search)
        if not run.working:
            return [*others, *again], met or outage
        return await self._try(run, others, search=search) if others else (again, met)

    async def _suspect(
        self, run: DeliveryRun, rows: Sequence[Sending], outage: rules.Unavailable, *, search: bool
    ) -> Unsettled:
        if len(rows) == 1:
            return await self._single(run, rows[0], outage)
        if search and rules.may_blame_event(outage) and run.has_time():
            return await self._isolate(run, rows)
        return list(rows), outage

    async def _bisect(
        self, run: DeliveryRun, rows: Sequence[Sending], *, search: bool
    ) -> Unsettled:
        first, second = rules.split(rows)
        left, outage = await self._try(run, first, search=search)
        if outage is not None:
            return [*left, *second], outage
        return await self._try(run, second, search=search)

    async def _isolate(self, run: DeliveryRun, rows: Sequence[Sending]) -> Unsettled:
        """If one half is delivered, the other has the bad event; if none is, the cloud is away."""
        first, second = rules.split(rows)
        left, outage = await self._try(run, first, search=run.reached)
        rest, gone = await self._try(run, second, search=outage is None or run.reached)
        if outage is not None and gone is None:
            left, outage = await self._try(run, left, search=True)
        return [*left, *rest], outage or gone

    async def _single(self, run: DeliveryRun, row: Sending, outage: rules.Unavailable) -> Unsettled:
        """One event meets an outage: its own fault if others are delivered, else not."""
        own = rules.may_blame_event(outage) and (run.reached or await self._others_passed(run, row))
        if not own:
            return [row], outage
        # The next one has to show again that the cloud is there: an outage may begin any time.
        run.reached = False
        failed = rules.Transient(f"{rules.ALONE}{outage.code}", outage.message)
        await self._settler.failed(run.tenant_id, row, failed)
        return [], None

    async def _others_passed(self, run: DeliveryRun, row: Sending) -> bool:
        """Whether it has failed alone before, and others were delivered since."""
        if not rules.is_alone(row.last_error_code):
            return False
        async with db.transaction(self._pool) as tx:
            return await store.acked_since(tx, run.tenant_id, row.last_attempt_at)

    def _sizer(self, tenant: Tenant) -> BatchSizer:
        """The size of the next batch; small after an outage, also after a restart."""
        max_size = self._settings.sync_batch
        known = self._sizers.get(tenant.tenant_id, BatchSizer(max_size, max_size))
        if tenant.failures:
            known = BatchSizer(max_size, min(known.size, rules.PROBE_EVENTS))
        self._sizers[tenant.tenant_id] = known
        return known

    async def _prioritise_live(self, tenant: Tenant) -> None:
        """Give new events a priority above a backlog that drains (C-92).

        And those of the last pause, in which nobody knew that the cloud was back (D-290, D-340).
        """
        async with db.transaction(self._pool) as tx:
            waiting = await store.waiting_at(
                tx, tenant.tenant_id, level=tenant.level, limit=rules.BACKLOG_ROWS + 1
            )
            level = rules.next_level(tenant.level, waiting_at_level=waiting)
            rises = level != tenant.level and await store.set_level(
                tx, tenant.tenant_id, before=tenant.level, level=level
            )
            if level:
                # When it begins: the pause, and as much again for the request that ended it.
                # Afterwards: what was being written at that very moment.
                begins = rises and tenant.level == 0
                before_s = 2 * self._settings.sync_breaker_s if begins else rules.MOMENT_S
                await store.raise_recent(
                    tx, tenant.tenant_id, level=level, before_s=before_s, limit=rules.RECENT_ROWS
                )

    @contextlib.asynccontextmanager
    async def _renewing(self, rows: Sequence[Claimed]) -> AsyncIterator[None]:
        """Renew the lease while the block runs (OB-20)."""
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
                # Nothing is lost: another forwarder delivers rows whose lease ends.
                self._log.warning("sync.not_renewed", error=db.first_line(error))
                continue
            RENEWED.inc(count)
            crash.here("sync.after_renewal")
