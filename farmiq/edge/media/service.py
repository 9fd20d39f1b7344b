"""Media at the edge: where images are uploaded to, whether they are whole, what the cloud has.

station --presign--> [media] --address--> station --PUT--> the edge's bucket
ingress --announced(tx, …)--> media_objects --> [media] --stored, sync_outbox--> sync
                                    bucket --> [media] --presign, PUT--> cloud-media-store

An image's bytes do not pass through us on their way in: the station PUTs them into the store by an
address that is signed for exactly these bytes, and the checker looks whether they came (C-25). Only
an upload of unknown length goes through this service (upload.py), which limits it.
"""

import asyncio
from collections.abc import Awaitable, Callable

import httpx2

from farmiq.config import EdgeSettings
from farmiq.edge.bucket import bucket_of
from farmiq.edge.daily import daily_job
from farmiq.edge.media import jobs
from farmiq.edge.media.api import Api
from farmiq.edge.media.cloud_upload import CloudUploader
from farmiq.edge.media.handlers import ImageChecker
from farmiq.plumbing import db, http, log
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.schedule import Job
from farmiq.plumbing.storage import objects

NAME = "edge-media-store"
MEASURE_S = 15.0
SHED_S = 60.0


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, max_size=8) as pool,
        asyncio.TaskGroup() as group,
    ):
        server.ready("media.database", lambda: db.problem(pool))
        bucket = bucket_of(settings)
        checker = ImageChecker(settings, pool, bucket) if bucket else None
        Api(settings, pool, bucket, checker).add_to(server.app)
        if bucket is None or checker is None:
            server.note("media.store", lambda: "takes no images: FARMIQ_EDGE_S3_URL is not set")
            await asyncio.Event().wait()
            return
        server.ready("media.store", bucket.problem)
        every_s = settings.media_check_s
        group.create_task(_repeat(checker.check_due, every_s, "media.away"))
        if settings.media_sync:
            group.create_task(_upload_to_cloud(settings, pool, bucket))
        for job in _jobs(settings, pool, bucket):
            group.create_task(schedule.run_repeatedly(job))


def _jobs(settings: EdgeSettings, pool: db.Pool, bucket: objects.Bucket) -> list[Job]:
    return [
        Job("media.measure", MEASURE_S, lambda: jobs.measure(pool)),
        Job("media.clock", MEASURE_S, lambda: jobs.reset_future_checks(pool, settings)),
        Job("media.shed", SHED_S, lambda: jobs.shed(pool, bucket, settings)),
        daily_job(pool, settings, "media.retention", lambda: jobs.purge(pool, bucket, settings)),
        daily_job(pool, settings, "media.verify", lambda: jobs.verify_and_alert(pool, bucket)),
    ]


async def _upload_to_cloud(settings: EdgeSettings, pool: db.Pool, bucket: objects.Bucket) -> None:
    tls = settings.tls.client() if settings.cloud_url.startswith("https:") else False

    def connect() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(timeout=settings.sync_timeout_s, verify=tls)

    async with CloudUploader(settings, pool, bucket, connect) as uploader:
        await _repeat(uploader.upload_once, settings.media_check_s, "media.database_away")


async def _repeat(work: Callable[[], Awaitable[int]], every_s: float, event: str) -> None:
    """Repeat at once while there is work, else every `every_s`; an outage only delays it."""
    backoff = Backoff(cap_s=10.0)
    while True:
        try:
            if not await work():
                await asyncio.sleep(every_s)
        except* (*db.UNAVAILABLE, *objects.UNAVAILABLE) as errors:
            log.get(NAME).warning(event, error=db.first_line(errors.exceptions[0]))
            await backoff.wait()
