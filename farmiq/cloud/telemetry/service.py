"""Telemetry in the cloud: readings from the bus into tables and rollups, and answers about them.

farmiq.telemetry.exchange --ingest.queue, agg.queue--> [telemetry] --telemetry_readings,
telemetry_latest, telemetry_agg, telemetry_dirty--> console, people
        telemetry_readings --> [telemetry] --telemetry_archives, the cloud's bucket--> people
        telemetry_dirty --> [telemetry] --telemetry_agg, farmiq.telemetry.exchange--> analytics

What arrives is acknowledged after the commit, its buckets marked in the same one. Buckets are
recomputed and published by jobs, so nobody who sends waits for them.
"""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import prometheus_client

from farmiq.cloud import bus, history, sink
from farmiq.cloud.history import History
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.cloud.sink import Sink
from farmiq.cloud.telemetry import archive, jobs, rollups, store
from farmiq.cloud.telemetry.api import Api
from farmiq.cloud.telemetry.store import ROLLUPS
from farmiq.config import CloudSettings
from farmiq.messages.bus import BusEvent
from farmiq.messages.check import InvalidError
from farmiq.plumbing import db, http, log
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.clock import AgeGuard
from farmiq.plumbing.runtime.schedule import Job

NAME = "cloud-telemetry-service"

MINUTE_S = 60.0
HOUR_S = 3600.0
# Rollups that are further behind than this are a problem: figures of today lack the last hour.
BEHIND_S = 3600.0

DIRTY = prometheus_client.Gauge(
    "farmiq_cloud_telemetry_dirty_marks", "Marks whose buckets have to be made again"
)
OLDEST = prometheus_client.Gauge(
    "farmiq_cloud_telemetry_dirty_oldest_seconds", "Age of the oldest of them"
)
UNPUBLISHED = prometheus_client.Gauge(
    "farmiq_cloud_telemetry_buckets_unpublished", "Ended buckets whose event is not on the bus yet"
)


def _require_device(event: BusEvent) -> None:
    if not isinstance(event.device_id, str):
        raise InvalidError(["a reading without a device_id belongs to no series"])


READINGS = Sink("telemetry", bus.TELEMETRY, store.store_readings, check=_require_device)
AGGREGATES = Sink("telemetry", bus.AGGREGATES, store.store_aggregates, check=store.check_aggregate)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url = settings.db_url.get_secret_value()
    async with (
        db.pool(url, name=NAME, min_size=0, max_size=6, timeout_s=3.0) as pool,
        amqp.publisher(
            settings.amqp_url.get_secret_value(), name=NAME, topology=bus.TOPOLOGY, tls=settings.tls
        ) as publisher,
        asyncio.TaskGroup() as group,
    ):
        sign_ins = SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
        archived = history.of(settings)
        Api(sign_ins, archived).add_to(server.app)
        if settings.telemetry_history_months is not None:
            server.note("telemetry.history", lambda: _cannot_archive(archived))
        server.ready("telemetry.bus", publisher.problem)
        server.note("telemetry.rollups", lambda: _behind(pool))
        for job in all_jobs(pool, publisher, settings, archived):
            group.create_task(schedule.run_repeatedly(job))
        await sink.run(settings, server, READINGS, AGGREGATES)


def all_jobs(
    pool: db.Pool, publisher: amqp.Publisher, settings: CloudSettings, archived: History
) -> Iterator[Job]:
    raw_days, minutes_days = settings.telemetry_raw_days, settings.telemetry_minutes_days
    history_months = settings.telemetry_history_months

    async def create_partitions() -> dict[str, object]:
        made = await jobs.create_partitions(
            pool, retention_days=raw_days, history_months=history_months
        )
        return {"made": len(made)}

    async def recompute() -> dict[str, object]:
        await recompute_and_publish(pool, publisher, settings, archived)
        return {}  # not for the log: this happens every few seconds

    async def purge() -> dict[str, object]:
        return await jobs.purge_expired(
            pool, raw_days=raw_days, minutes_days=minutes_days, archived=archived
        )

    yield Job("telemetry.months", MINUTE_S, create_partitions)
    yield Job("telemetry.buckets", settings.telemetry_agg_every_s, recompute)
    if raw_days is not None or minutes_days is not None:
        name = "telemetry.retention"
        yield Job(name, HOUR_S, AgeGuard(pool, name).guard(purge))
    if history_months is not None and _cannot_archive(archived) is None:
        name = "telemetry.history"

        async def archive_months() -> dict[str, object]:
            return await archive.archive_months(pool, archived, hot_months=history_months)

        yield Job(name, HOUR_S, AgeGuard(pool, name).guard(archive_months))


def _cannot_archive(archived: History) -> str | None:
    """Why months stay in the database though a setting wants them in files, or None."""
    if archived.bucket is None:
        return "TELEMETRY_HISTORY_MONTHS needs a bucket: FARMIQ_CLOUD_S3_URL is not set"
    return history.problem()


async def recompute_and_publish(
    pool: db.Pool, publisher: amqp.Publisher, settings: CloudSettings, archived: History
) -> None:
    """One round: what is marked now is recomputed, what has ended is published."""
    await rollups.recompute_all(pool, archived)
    settle_s = settings.telemetry_settle_s
    try:
        await rollups.publish_all(
            pool, publisher, settle_s=settle_s, timeout_s=settings.bus_timeout_s
        )
    except amqp.BusDownError as error:
        # The buckets stay pending; the next round tries again.
        log.get(NAME).warning("telemetry.bus_down", error=db.first_line(error))
    async with pool.connection() as connection:
        marks, oldest_s = await ROLLUPS.backlog(connection)
        UNPUBLISHED.set(await rollups.pending_backlog(connection, settle_s=settle_s))
    DIRTY.set(marks)
    OLDEST.set(oldest_s)


async def _behind(pool: db.Pool) -> str | None:
    """What is wrong with the rollups, in a sentence, or None; it stops no reading."""
    try:
        async with pool.connection(timeout=2.0) as connection:
            marks, oldest_s = await ROLLUPS.backlog(connection)
    except db.UNAVAILABLE:
        return None  # said elsewhere
    if oldest_s <= BEHIND_S:
        return None
    return f"rollups are {oldest_s / 60:.0f} minutes behind: {marks} marks wait"
