"""Observations: assesses the quality of each stored image, after its camera was answered.

petri_observations, the cloud's bucket --> [observations] --thumbnails/…, petri_observations-->

An analysis of images is added to `assess`; the result is stored with the verdict, once. One image
at a time is in memory, and it is decoded in another process.
"""

import asyncio
import hashlib
from dataclasses import asdict, dataclass, fields
from functools import partial
from uuid import UUID

import msgspec
import prometheus_client
from psycopg.rows import class_row

from farmiq import crash
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http, log
from farmiq.plumbing.images import decoding, gallery, pictures
from farmiq.plumbing.images.decoding import DecodeError, DecoderGoneError
from farmiq.plumbing.images.quality import Measures, Quality
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.storage import objects

NAME = "cloud-camera-observations"
# An image that ended the process or the decoder that often is not assessed again.
MAX_ATTEMPTS = 3
GIVEN_UP = f"looking at it was begun {MAX_ATTEMPTS} times and never ended"
NOT_HERE = "its bytes are not in the store of this cloud"
# A claim that is older belongs to a process that has died.
CLAIM_S = 60.0
RETRY_S = 30.0

ASSESSED = prometheus_client.Counter(
    "farmiq_camera_judged_total", "Images of cameras that were looked at, by verdict", ["verdict"]
)


@dataclass(frozen=True, slots=True)
class Observation:
    """`judge_attempts` includes this one."""

    observation_id: UUID
    company_id: UUID
    image_url: str
    judge_attempts: int

    @property
    def is_ours(self) -> bool:
        """An invented address must not open other objects of the bucket."""
        return self.image_url.startswith(f"camera/{self.company_id}/")


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    if settings.s3_url is None:
        server.note("observations", lambda: "judges no images: FARMIQ_CLOUD_S3_URL is not set")
        await asyncio.Event().wait()
        return
    bucket = objects.Bucket(settings.s3_url.get_secret_value(), tls=settings.tls)
    async with db.pool(
        settings.db_url.get_secret_value(), name=NAME, min_size=0, max_size=2
    ) as pool:
        server.ready("observations.database", lambda: db.problem(pool))
        server.ready("observations.store", bucket.problem)
        assess_all = partial(assess_images, pool, bucket)
        await schedule.run_repeatedly(
            schedule.Job("observations.judge", settings.camera_observe_s, assess_all)
        )


async def assess_images(pool: db.Pool, bucket: objects.Bucket) -> dict[str, object]:
    """Assess all new images; an unavailable store only delays it."""
    count = 0
    while (observation := await claim(pool)) is not None:
        crash.here("observations.after_claim")
        try:
            quality, thumbnail_url = await assess(bucket, observation)
        except objects.UNAVAILABLE as error:
            log.get(NAME).warning("observations.store_away", error=db.first_line(error))
            await _release(pool, observation)
            break
        except DecoderGoneError as error:
            # Claimed again when the claim expires; the attempt counts.
            log.get(NAME).warning("observations.decoder_gone", error=str(error))
            break
        crash.here("observations.after_put")
        await _store(pool, observation, quality, thumbnail_url)
        ASSESSED.labels(verdict=quality.grade).inc()
        count += 1
    return {"count": count}


async def assess(bucket: objects.Bucket, observation: Observation) -> tuple[Quality, str | None]:
    """Quality and object key of the thumbnail. Raises DecoderGoneError."""
    if observation.judge_attempts > MAX_ATTEMPTS:
        return Quality(grade="unreadable", reason=GIVEN_UP), None
    data = await bucket.find(observation.image_url) if observation.is_ours else None
    if data is None:
        return Quality(grade="missing", reason=NOT_HERE), None
    try:
        decoded = await asyncio.to_thread(decoding.decode, "assess", data, limits=gallery.LIMITS)
    except DecodeError as error:
        sha256 = hashlib.sha256(data).hexdigest()
        quality = Quality(
            grade="unreadable", reason=str(error), size_bytes=len(data), sha256=sha256
        )
        return quality, None
    key = gallery.small_key(observation.image_url) if decoded.data else None
    if key is not None:
        await bucket.put(key, decoded.data, content_type=pictures.JPEG)
    return msgspec.convert(decoded.facts, Quality), key


async def claim(pool: db.Pool) -> Observation | None:
    """Claim the oldest image without a claim; several processes may call this at once."""
    async with (
        db.transaction(pool) as tx,
        tx.cursor(row_factory=class_row(Observation)) as cursor,
    ):
        await cursor.execute(
            """
            update petri_observations o
            set judging_until = fn_now() + %s * interval '1 second',
              judge_attempts = o.judge_attempts + 1
            from device_images i
            where i.image_id = o.image_id and o.observation_id = (
              select n.observation_id from petri_observations n
              where n.quality is null
                and (n.judging_until is null or n.judging_until <= fn_now()
                  or n.judging_until > fn_now() + 2 * %s * interval '1 second')
              order by n.created_at limit 1 for update skip locked)
            returning o.observation_id, o.company_id, i.image_url, o.judge_attempts
            """,
            (CLAIM_S, CLAIM_S),
        )
        return await cursor.fetchone()


async def _release(pool: db.Pool, observation: Observation) -> None:
    """The attempt does not count; other images go first, if the store rejects only this one."""
    async with db.transaction(pool) as tx:
        await tx.execute(
            """
            update petri_observations set judge_attempts = judge_attempts - 1,
              judging_until = fn_now() + %s * interval '1 second'
            where observation_id = %s and quality is null
            """,
            (RETRY_S, observation.observation_id),
        )


async def _store(
    pool: db.Pool, observation: Observation, quality: Quality, thumbnail_url: str | None
) -> None:
    """Store the result, unless another process has."""
    values = asdict(quality)
    measures = values.pop("measures") or dict.fromkeys(field.name for field in fields(Measures))
    own = {"thumbnail_url": thumbnail_url, "observation_id": observation.observation_id}
    async with db.transaction(pool) as tx:
        await tx.execute(
            """
            update petri_observations
            set quality = %(grade)s, quality_reason = %(reason)s, size_bytes = %(size_bytes)s,
              sha256 = %(sha256)s, width_px = %(width_px)s, height_px = %(height_px)s,
              sharpness = %(sharpness)s, brightness = %(brightness)s, dark_share = %(dark_share)s,
              bright_share = %(bright_share)s, thumbnail_url = %(thumbnail_url)s,
              judged_at = fn_now(), judging_until = null
            where observation_id = %(observation_id)s and quality is null
            """,
            values | measures | own,
        )
