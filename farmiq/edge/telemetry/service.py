"""Telemetry at the edge: the readings' tables, their rollups, and the answers about them.

ingress --record(tx, …)--> telemetry_raw, telemetry_dirty
        telemetry_dirty --> [telemetry] --telemetry_agg, telemetry_latest, sync_outbox-->

Ingress writes the readings inside its one transaction (C-81). This service recomputes dirty
buckets, creates partitions, purges what has expired, and answers.
"""

import asyncio

import prometheus_client

from farmiq.config import EdgeSettings
from farmiq.edge.daily import daily_job
from farmiq.edge.telemetry import api, jobs, rollups
from farmiq.edge.telemetry.store import ROLLUPS
from farmiq.plumbing import db, http
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.schedule import Job

NAME = "edge-telemetry-timeseries"

MINUTE_S = 60.0

DIRTY = prometheus_client.Gauge(
    "farmiq_telemetry_dirty_marks", "Marks whose buckets have to be made again"
)
OLDEST = prometheus_client.Gauge(
    "farmiq_telemetry_dirty_oldest_seconds", "Age of the oldest of them"
)


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME) as pool,
        asyncio.TaskGroup() as group,
    ):
        server.ready("telemetry.database", lambda: db.problem(pool))
        api.Api(pool).add_to(server.app)
        for job in all_jobs(pool, settings):
            group.create_task(schedule.run_repeatedly(job))


def all_jobs(pool: db.Pool, settings: EdgeSettings) -> list[Job]:
    async def create_partitions() -> dict[str, object]:
        created = await jobs.create_partitions(pool, retention_days=settings.telemetry_raw_days)
        return {"made": len(created)}

    async def purge() -> dict[str, object]:
        return await jobs.purge_expired(
            pool,
            raw_days=settings.telemetry_raw_days,
            agg_days=settings.telemetry_agg_days,
            timezone=settings.timezone,
        )

    async def recompute() -> dict[str, object]:
        await recompute_rollups(pool, settings)
        return {}  # not for the log: this happens every few seconds

    return [
        # One small look at the catalog: a box that was off at a month's end creates it at once.
        Job("telemetry.months", MINUTE_S, create_partitions),
        Job("telemetry.clocks", MINUTE_S, lambda: jobs.close_clock_alerts(pool)),
        Job("telemetry.buckets", settings.telemetry_agg_every_s, recompute),
        daily_job(pool, settings, "telemetry.retention", purge),
    ]


async def recompute_rollups(pool: db.Pool, settings: EdgeSettings) -> None:
    """Recompute what is marked now, in batches; marks that come meanwhile can wait.

    Under a steady load there is always a new mark: a round that went on until none is left would
    never end, and would recompute the current minute without a pause.
    """
    zone = settings.timezone
    await rollups.initialize(pool, timezone=zone, retention_days=settings.telemetry_raw_days)
    while await rollups.recompute_next_rezoned(pool, timezone=zone):
        pass
    async with pool.connection() as connection:
        up_to = await ROLLUPS.newest_mark(connection)
    while True:
        done = await rollups.recompute_batch(
            pool, timezone=zone, settle_s=settings.telemetry_settle_s, up_to=up_to
        )
        async with pool.connection() as connection:
            marks, oldest_s = await ROLLUPS.backlog(connection)
        DIRTY.set(marks)
        OLDEST.set(oldest_s)
        if done.is_nothing:
            return
