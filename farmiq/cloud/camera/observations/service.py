"""Observations: each stored image is looked at, after its camera was answered and may sleep.

petri_observations, the cloud's bucket --> [observations] --thumbnails/…, petri_observations-->

This is the door for whatever looks at images: `look` gets an image with its observation, and what
it finds is written with the verdict, once. One image at a time is held, and decoded elsewhere.
"""

import asyncio
import hashlib
from functools import partial

import msgspec
import prometheus_client

from farmiq import crash
from farmiq.cloud.camera.observations import store
from farmiq.cloud.camera.observations.store import Observation
from farmiq.config import CloudSettings
from farmiq.plumbing import chores, db, decoding, gallery, http, log, objects, pictures
from farmiq.plumbing.decoding import DecodeError, DecoderGoneError
from farmiq.plumbing.quality import Quality

NAME = "cloud-camera-observations"
# An image that ended the process, or saw the decoder ended, that often is not looked at again.
MOST_ATTEMPTS = 3
GIVEN_UP = f"looking at it was begun {MOST_ATTEMPTS} times and never ended"
NOT_HERE = "its bytes are not in the store of this cloud"

JUDGED = prometheus_client.Counter(
    "farmiq_camera_judged_total", "Images of cameras that were looked at, by verdict", ["verdict"]
)


async def run(settings: CloudSettings, door: http.Door) -> None:
    if settings.s3_url is None:
        door.note("observations", lambda: "judges no images: FARMIQ_CLOUD_S3_URL is not set")
        await asyncio.Event().wait()
        return
    bucket = objects.Bucket(settings.s3_url.get_secret_value(), tls=settings.tls)
    async with db.pool(settings.db_url.get_secret_value(), name=NAME, least=0, most=2) as pool:
        door.ready("observations.database", lambda: db.problem(pool))
        door.ready("observations.store", bucket.problem)
        judging = partial(judge_all, pool, bucket)
        await chores.keep_doing(
            chores.Chore("observations.judge", settings.camera_observe_s, judging)
        )


async def judge_all(pool: db.Pool, bucket: objects.Bucket) -> dict[str, object]:
    """All that nobody has looked at; a store that is away only delays it."""
    count = 0
    while (found := await _claim(pool)) is not None:
        crash.here("observations.after_claim")
        try:
            judged, thumbnail_url = await look(bucket, found)
        except objects.UNAVAILABLE as error:
            log.get(NAME).warning("observations.store_away", error=db.first_line(error))
            async with db.transaction(pool) as tx:
                await store.release(tx, found.observation_id)
            break
        except DecoderGoneError as error:
            # Its turn comes again when the claim runs out, and the attempt counts.
            log.get(NAME).warning("observations.decoder_gone", error=str(error))
            break
        crash.here("observations.after_put")
        async with db.transaction(pool) as tx:
            await store.settle(tx, found.observation_id, judged, thumbnail_url=thumbnail_url)
        JUDGED.labels(verdict=judged.verdict).inc()
        count += 1
    return {"count": count}


async def look(bucket: objects.Bucket, found: Observation) -> tuple[Quality, str | None]:
    """What an image is worth, and where its small copy is."""
    if found.judge_attempts > MOST_ATTEMPTS:
        return Quality(verdict="unreadable", reason=GIVEN_UP), None
    data = await bucket.find(found.image_url) if found.is_ours else None
    if data is None:
        return Quality(verdict="missing", reason=NOT_HERE), None
    judged, small = await asyncio.to_thread(judge, data)
    if not small:
        return judged, None
    key = gallery.small_key(found.image_url)
    await bucket.put(key, small, content_type=pictures.JPEG)
    return judged, key


def judge(data: bytes) -> tuple[Quality, bytes]:
    """What a picture is worth, and its small copy; it never harms us, whatever it is.

    Raises DecoderGoneError.
    """
    try:
        found = decoding.decode("judge", data, limits=gallery.LIMITS)
    except DecodeError as error:
        sha256 = hashlib.sha256(data).hexdigest()
        return Quality(
            verdict="unreadable", reason=str(error), size_bytes=len(data), sha256=sha256
        ), b""
    return msgspec.convert(found.facts, Quality), found.data


async def _claim(pool: db.Pool) -> Observation | None:
    async with db.transaction(pool) as tx:
        return await store.claim(tx)
