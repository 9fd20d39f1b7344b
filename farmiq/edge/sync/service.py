"""Sync: the outbox to the cloud, one tenant per batch, until everything is acknowledged.

sync_outbox --claim--> [sync] --POST /api/v1/ingestion/batch--> cloud-ingestion
cloud-edges-registry --GET /api/v1/edges/context--> [sync] --cloud_farms, cloud_batches--> edge

A claimed row is ours for the length of its lease. If we crash, the lease ends and the row is
released; if the cloud has it already, the cloud knows its id. Any number of forwarders may run.
"""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import httpx2

from farmiq.config import EdgeSettings
from farmiq.edge.daily import daily_job
from farmiq.edge.sync import api, context, jobs
from farmiq.edge.sync.cloud import Cloud
from farmiq.edge.sync.forwarder import Forwarder
from farmiq.edge.sync.monitor import Monitor, send_heartbeats
from farmiq.plumbing import db, http, log
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.schedule import Job

NAME = "edge-sync-forwarder"
SETTLE_S = 2.0


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    tls = settings.tls.client() if settings.cloud_url.startswith("https:") else False

    def connect() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(timeout=settings.sync_timeout_s, verify=tls)

    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, max_size=6) as pool,
        Cloud(connect, settings) as cloud,
        Cloud(connect, settings) as heartbeat_cloud,
        asyncio.TaskGroup() as group,
    ):
        forwarder = Forwarder(settings, pool, cloud)
        monitor = Monitor(settings, pool, delivered=lambda: forwarder.delivered)
        server.ready("sync.database", lambda: db.problem(pool))
        api.Api(pool, monitor).add_to(server.app)
        group.create_task(forward_for_ever(forwarder, poll_s=settings.sync_poll_ms / 1000))
        group.create_task(help_for_ever(forwarder))
        group.create_task(_later(monitor.run()))
        beat = Job(
            "sync.heartbeat",
            settings.sync_heartbeat_s,
            lambda: send_heartbeats(pool, heartbeat_cloud, settings, seen=monitor.seen),
        )
        fetch = Job(
            "sync.context",
            0.0,
            lambda: context.fetch(pool, heartbeat_cloud, every_s=settings.sync_context_s),
        )
        for job in (*_jobs(settings, pool), beat, fetch):
            group.create_task(_later(schedule.run_repeatedly(job)))


async def _later(what: Coroutine[Any, Any, None]) -> None:
    """Start a moment later what scans the whole outbox: events are sent first."""
    await asyncio.sleep(SETTLE_S)
    await what


async def forward_for_ever(forwarder: Forwarder, *, poll_s: float) -> None:
    backoff = Backoff(cap_s=5.0)
    # Replicas that started together must not poll together (C-13).
    await asyncio.sleep(random.random() * min(poll_s * 4, 1.0))  # noqa: S311
    while True:
        if not await _forward(forwarder, backoff):
            await asyncio.sleep(poll_s)


async def help_for_ever(forwarder: Forwarder) -> None:
    """The second lane: while a backlog drains, it claims one batch while another is sent."""
    backoff = Backoff(cap_s=5.0)
    while True:
        await forwarder.draining.wait()
        await _forward(forwarder, backoff)


async def _forward(forwarder: Forwarder, backoff: Backoff) -> int:
    try:
        return await forwarder.forward_once()
    except db.UNAVAILABLE as error:
        log.get(NAME).warning("sync.database_away", error=db.first_line(error))
        await backoff.wait()
        return 0


def _jobs(settings: EdgeSettings, pool: db.Pool) -> list[Job]:
    return [
        Job("sync.reap", settings.sync_lease_s / 2, lambda: jobs.reap(pool, settings)),
        Job("sync.clock", 30.0, lambda: jobs.reset_clock(pool, settings)),
        Job("sync.sweep", 60.0, lambda: jobs.sweep(pool, settings)),
        daily_job(pool, settings, "sync.retention", lambda: jobs.purge(pool, settings)),
    ]
