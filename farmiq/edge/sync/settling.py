"""Settling: what an answer of the cloud does to the rows that were sent, one transaction each."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import prometheus_client

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.sync import store, tenants, verdict, watch
from farmiq.edge.sync.store import Again, Sending
from farmiq.plumbing import backoff, db, log, retry

SETTLED = prometheus_client.Counter(
    "farmiq_sync_events_total", "Events settled by the forwarder", ["outcome"]
)
LOST = prometheus_client.Counter(
    "farmiq_sync_leases_lost_total", "Events whose lease ended before they were settled"
)


class Settling:
    """On behalf of one forwarder: every write names its claim, so what it lost stays as it is."""

    def __init__(self, settings: EdgeSettings, pool: db.Pool, *, me: str, name: str) -> None:
        self._settings, self._pool, self._me, self._name = settings, pool, me, name
        self._log = log.get(name)

    async def acked(self, tenant_id: str, rows: Sequence[Sending], batch_id: str) -> int:
        """The cloud has them; returns how many were still ours to settle."""
        async with db.transaction(self._pool) as tx:
            count = await store.acked(tx, rows, claimed_by=self._me)
            ended = await tenants.note_success(
                tx,
                tenant_id,
                last=rows[-1],
                batch_id=batch_id,
                outage_codes=verdict.OUTAGE_CODES,
            )
            if ended:
                await alerts.close(tx, kind=watch.NOT_LET_IN, subject=tenant_id, by=self._name)
            crash.here("sync.before_settle_commit")
        named = ((row.id, row.event_type, row.trace_id) for row in rows)
        log.events(self._log, "sync.delivered", named, batch_id=batch_id)
        SETTLED.labels(outcome="acked").inc(count)
        LOST.inc(len(rows) - count)
        return count

    async def away(self, tenant_id: str, rows: Sequence[Sending], away: verdict.Away) -> None:
        async with db.transaction(self._pool) as tx:
            pause_s = verdict.pause_s(
                await tenants.failures(tx, tenant_id),
                cap_s=self._settings.sync_breaker_s,
                retry_after_s=away.retry_after_s,
                max_retry_after_s=self._settings.sync_cap_s,
            )
            await tenants.note_outage(
                tx, tenant_id, pause_s=pause_s, code=away.code, message=away.message
            )
            if verdict.needs_a_person(away.code):
                await alerts.raise_(tx, watch.not_let_in(tenant_id, away))
        await self._again(rows, away.code, away.message, outage=True)
        self._log.warning(
            "sync.cloud_away", code=away.code, error=away.message, wait_s=pause_s, count=len(rows)
        )

    async def refused(
        self, tenant_id: str, rows: Sequence[Sending], reasons: dict[int, str]
    ) -> None:
        blamed = {rows[index]: reason for index, reason in reasons.items()}
        await self._aside(tenant_id, blamed, reason=verdict.REJECTED, code="HTTP_400")

    async def failed(self, tenant_id: str, row: Sending, failed: verdict.Failed) -> None:
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
        # What failed alone before is known for that until it gets through.
        named: defaultdict[str, dict[Sending, Again]] = defaultdict(dict)
        for row in rows:
            alone = outage and verdict.is_alone(row.last_error_code)
            name = (row.last_error_code if alone else None) or code
            named[name][row] = self._back_off(row, outage=outage)
        async with db.transaction(self._pool) as tx:
            counts = [
                await store.retry(tx, some, claimed_by=self._me, code=name, message=message)
                for name, some in named.items()
            ]
        SETTLED.labels(outcome="again").inc(sum(counts))

    def _back_off(self, row: Sending, *, outage: bool) -> Again:
        attempts = self._attempts(row, outage=outage)
        cap_s = self._settings.sync_cap_s
        if outage:
            # No longer than its tenant pauses: when the cloud is back, all is sent (BK-10).
            cap_s = min(cap_s, self._settings.sync_breaker_s)
        policy = retry.documented(base_s=self._settings.sync_base_s, cap_s=cap_s)
        return Again(attempts, policy.delay_s(attempts, chance=backoff.chance()))

    def _attempts(self, row: Sending, *, outage: bool) -> int:
        return verdict.attempts_after(
            row.attempt_count,
            most=self._settings.sync_max_attempts,
            outage=outage,
            last_code=row.last_error_code,
        )
