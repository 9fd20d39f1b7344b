"""Media at the edge: where images may be put, whether they are whole, what the cloud has of them.

station --presign--> [media] --address--> station --PUT--> the edge's bucket
ingress --announced(tx, …)--> media_objects --> [media] --stored, sync_outbox--> sync
                                    bucket --> [media] --presign, PUT--> cloud-media-store

An image's bytes do not pass through us on their way in: the station PUTs them into the store by an
address that is signed for exactly these bytes, and the loop looks whether they came (C-25). Only an
upload whose length was not said goes by an address of ours (upload.py), which ends it in time.
"""

import asyncio

import httpx2

from farmiq.config import EdgeSettings
from farmiq.edge import diary
from farmiq.edge.media import upkeep
from farmiq.edge.media.api import Api
from farmiq.edge.media.carrying import Carrier
from farmiq.edge.media.keeping import Keeper
from farmiq.plumbing import chores, db, http, log, objects
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.chores import Chore

NAME = "edge-media-store"
MEASURE_S = 15.0
SHED_S = 60.0


async def run(settings: EdgeSettings, door: http.Door) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, most=8) as pool,
        asyncio.TaskGroup() as group,
    ):
        door.ready("media.database", lambda: db.problem(pool))
        bucket = bucket_of(settings)
        keeper = Keeper(settings, pool, bucket) if bucket else None
        Api(settings, pool, bucket, keeper).add_to(door.app)
        if bucket is None or keeper is None:
            door.note("media.store", lambda: "takes no images: FARMIQ_EDGE_S3_URL is not set")
            await asyncio.Event().wait()
            return
        door.ready("media.store", bucket.problem)
        group.create_task(look_for_ever(keeper, every_s=settings.media_check_s))
        if settings.media_sync:
            group.create_task(_carry(settings, pool, bucket))
        for chore in _chores(settings, pool, bucket):
            group.create_task(chores.keep_doing(chore))


async def look_for_ever(keeper: Keeper, *, every_s: float) -> None:
    backoff = Backoff(cap_s=10.0)
    while True:
        try:
            if not await keeper.look_once():
                await asyncio.sleep(every_s)
        except* (*db.UNAVAILABLE, *objects.UNAVAILABLE) as errors:
            log.get(NAME).warning("media.away", error=db.first_line(errors.exceptions[0]))
            await backoff.wait()


def _chores(settings: EdgeSettings, pool: db.Pool, bucket: objects.Bucket) -> list[Chore]:
    return [
        Chore("media.measure", MEASURE_S, lambda: upkeep.measure(pool)),
        Chore("media.clock", MEASURE_S, lambda: upkeep.set_right(pool, settings)),
        Chore("media.shed", SHED_S, lambda: upkeep.shed(pool, bucket, settings)),
        diary.daily(
            pool, settings, "media.retention", lambda: upkeep.forget(pool, bucket, settings)
        ),
        diary.daily(pool, settings, "media.verify", lambda: upkeep.watch(pool, bucket)),
    ]


async def _carry(settings: EdgeSettings, pool: db.Pool, bucket: objects.Bucket) -> None:
    tls = settings.tls.client() if settings.cloud_url.startswith("https:") else False

    def connect() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(timeout=settings.sync_timeout_s, verify=tls)

    async with Carrier(settings, pool, bucket, connect) as carrier:
        await carry_for_ever(carrier, every_s=settings.media_check_s)


async def carry_for_ever(carrier: Carrier, *, every_s: float) -> None:
    backoff = Backoff(cap_s=10.0)
    while True:
        try:
            if not await carrier.carry_once():
                await asyncio.sleep(every_s)
        except db.UNAVAILABLE as error:
            log.get(NAME).warning("media.database_away", error=db.first_line(error))
            await backoff.wait()


def bucket_of(settings: EdgeSettings) -> objects.Bucket | None:
    if settings.s3_url is None:
        return None
    return objects.Bucket(
        settings.s3_url.get_secret_value(), tls=settings.tls, public_url=settings.s3_public_url
    )
