"""Sync: the outbox to the cloud, one tenant per batch, until everything is acknowledged.

sync_outbox --claim--> [sync] --POST /api/v1/ingestion/batch--> cloud-ingestion

A claimed row is ours for the length of its lease. If we die, the lease ends and another forwarder
claims it; if the cloud had it already, the cloud knows it by its id.
"""

import asyncio
import os
import random
import socket
from itertools import groupby

import httpx2
import prometheus_client

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge.sync import store, verdict
from farmiq.edge.sync.cloud import Cloud
from farmiq.edge.sync.store import Claimed
from farmiq.plumbing import db, http, ids, log
from farmiq.plumbing.backoff import Backoff

NAME = "edge-sync-forwarder"

SETTLED = prometheus_client.Counter(
    "farmiq_sync_events_total", "Events settled by the forwarder", ["outcome"]
)
RECLAIMED = prometheus_client.Counter(
    "farmiq_sync_reclaimed_total", "Events claimed again because a lease had ended"
)
BACKLOG = prometheus_client.Gauge("farmiq_sync_backlog", "Events not delivered yet")
OLDEST = prometheus_client.Gauge("farmiq_sync_oldest_seconds", "Age of the oldest of them")


async def run(settings: EdgeSettings, door: http.Door) -> None:
    tls = settings.tls.client() if settings.cloud_url.startswith("https:") else False
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME) as pool,
        httpx2.AsyncClient(timeout=settings.sync_timeout_s, verify=tls) as client,
    ):
        forwarder = Forwarder(settings, pool, Cloud(client, settings))
        door.ready("sync.database", lambda: db.problem(pool))
        async with asyncio.TaskGroup() as group:
            group.create_task(forwarder.forward_for_ever())
            group.create_task(forwarder.measure_for_ever())


class Forwarder:
    def __init__(self, settings: EdgeSettings, pool: db.Pool, cloud: Cloud) -> None:
        self._settings, self._pool, self._cloud = settings, pool, cloud
        self._me = f"{socket.gethostname()}:{os.getpid()}:{ids.new()}"
        self._log = log.get(NAME)

    async def forward_for_ever(self) -> None:
        backoff = Backoff(cap_s=5.0)
        # Replicas that started together must not poll together (C-13).
        await asyncio.sleep(random.random() * self._settings.sync_poll_ms / 1000)  # noqa: S311
        while True:
            try:
                if not await self.forward_once():
                    await asyncio.sleep(self._settings.sync_poll_ms / 1000)
            except db.UNAVAILABLE as error:
                self._log.warning("sync.database_away", error=db.first_line(error))
                await backoff.wait()

    async def measure_for_ever(self) -> None:
        while True:
            try:
                async with db.transaction(self._pool) as tx:
                    count, age_s = await store.backlog(tx)
            except db.UNAVAILABLE:
                pass  # the loop beside this one says so
            else:
                BACKLOG.set(count)
                OLDEST.set(age_s)
            await asyncio.sleep(5.0)

    async def forward_once(self) -> int:
        """Claim, send and settle once; returns how many events were claimed."""
        async with db.transaction(self._pool) as tx:
            rows = await store.claim(
                tx,
                claimed_by=self._me,
                most=self._settings.sync_batch,
                lease_s=self._settings.sync_lease_s,
            )
        crash.here("sync.after_claim")
        RECLAIMED.inc(sum(row.reclaimed for row in rows))
        for tenant_id, batch in groupby(rows, key=lambda row: row.tenant_id):
            await self._deliver(tenant_id, list(batch))
        return len(rows)

    async def _deliver(self, tenant_id: str, rows: list[Claimed]) -> None:
        batch_id = f"batch-{ids.new()}"
        answer = await self._cloud.send(batch_id, tenant_id, [row.event() for row in rows])
        match verdict.judge(answer, count=len(rows)):
            case verdict.Delivered():
                crash.here("sync.after_answer")
                await self._acked(tenant_id, rows, batch_id)
            case verdict.Away() as away:
                await self._away(tenant_id, rows, away)
            case verdict.Refused(reasons):
                await self._refused(rows, reasons)
                rest = [row for index, row in enumerate(rows) if index not in reasons]
                if rest:
                    await self._deliver(tenant_id, rest)
            case verdict.Failed() as failed if len(rows) == 1:
                await self._failed(rows[0], failed)
            case verdict.Failed():
                middle = len(rows) // 2
                await self._deliver(tenant_id, rows[:middle])
                await self._deliver(tenant_id, rows[middle:])

    async def _acked(self, tenant_id: str, rows: list[Claimed], batch_id: str) -> None:
        async with db.transaction(self._pool) as tx:
            await store.acked(tx, rows, claimed_by=self._me)
            await store.note_success(
                tx,
                tenant_id,
                last=rows[-1],
                batch_id=batch_id,
                outage_codes=verdict.OUTAGE_CODES,
            )
            crash.here("sync.before_settle_commit")
        SETTLED.labels(outcome="acked").inc(len(rows))

    async def _away(self, tenant_id: str, rows: list[Claimed], away: verdict.Away) -> None:
        async with db.transaction(self._pool) as tx:
            pause_s = verdict.pause_s(
                await store.failures(tx, tenant_id),
                longest_s=self._settings.sync_breaker_s,
                retry_after_s=away.retry_after_s,
            )
            for row in rows:
                await self._again(tx, row, away.code, away.message, outage=True)
            await store.note_outage(tx, tenant_id, pause_s=pause_s)
        SETTLED.labels(outcome="again").inc(len(rows))
        self._log.warning(
            "sync.cloud_away", code=away.code, error=away.message, wait_s=pause_s, count=len(rows)
        )

    async def _refused(self, rows: list[Claimed], reasons: dict[int, str]) -> None:
        blamed = {rows[index]: reason for index, reason in reasons.items()}
        async with db.transaction(self._pool) as tx:
            await store.set_aside(
                tx,
                blamed,
                claimed_by=self._me,
                reason="rejected:VALIDATION_ERROR",
                code="HTTP_400",
            )
        SETTLED.labels(outcome="dlq").inc(len(blamed))
        for row in blamed:
            self._log.error(
                "sync.refused",
                event_id=str(row.id),
                event_type=row.event_type,
                trace_id=row.trace_id,
            )

    async def _failed(self, row: Claimed, failed: verdict.Failed) -> None:
        last = self._attempts(row, outage=False) >= self._settings.sync_max_attempts
        async with db.transaction(self._pool) as tx:
            if last:
                await store.set_aside(
                    tx,
                    {row: failed.message},
                    claimed_by=self._me,
                    reason="max_attempts_exceeded",
                    code=failed.code,
                )
            else:
                await self._again(tx, row, failed.code, failed.message, outage=False)
        SETTLED.labels(outcome="dlq" if last else "again").inc()

    async def _again(
        self, tx: db.Connection, row: Claimed, code: str, message: str, *, outage: bool
    ) -> None:
        attempts = self._attempts(row, outage=outage)
        delay_ms = verdict.backoff_ms(
            attempts,
            base_s=self._settings.sync_base_s,
            cap_s=self._settings.sync_cap_s,
            jitter_ms=random.random() * 1000,  # noqa: S311 - jitter, not a secret
        )
        await store.retry(
            tx,
            row,
            claimed_by=self._me,
            attempts=attempts,
            delay_ms=delay_ms,
            code=code,
            message=message,
        )

    def _attempts(self, row: Claimed, *, outage: bool) -> int:
        return verdict.attempts_after(
            row.attempt_count,
            most=self._settings.sync_max_attempts,
            outage=outage,
            last_code=row.last_error_code,
        )
