"""Observations: how good each stored image is, and how its dish changed since its first image.

petri_observations, dish_series, the bucket --> [observations] --thumbnails/…, both tables-->

It looks after the camera was answered; the results are stored once. One image at a time is in
memory, and it is decoded in another process (worker.py).
"""

import asyncio
import base64
import hashlib
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
import prometheus_client
from psycopg.rows import class_row

from farmiq import crash
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http, ids, log
from farmiq.plumbing.images import gallery, pictures
from farmiq.plumbing.images.quality import Measures, Quality
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.sandbox import InputRejectedError, Limits, Sandbox, WorkerGoneError
from farmiq.plumbing.storage import objects

NAME = "cloud-camera-observations"
# An image that ended the process or the decoder that often is not assessed again.
MAX_ATTEMPTS = 3
GIVEN_UP = f"looking at it was begun {MAX_ATTEMPTS} times and never ended"
NOT_HERE = "its bytes are not in the store of this cloud"
# A claim that is older belongs to a process that has died.
CLAIM_S = 60.0
RETRY_S = 30.0
# One thread: what the libraries of numbers take for others counts as the image's memory.
WORKER = Sandbox(
    "farmiq.cloud.camera.observations.worker", environment={"OPENBLAS_NUM_THREADS": "1"}
)
LIMITS = Limits(memory_bytes=400 * 2**20, cpu_s=20)

ASSESSED = prometheus_client.Counter(
    "farmiq_camera_judged_total", "Images of cameras that were looked at, by verdict", ["verdict"]
)


@dataclass(frozen=True, slots=True)
class Observation:
    """`judge_attempts` includes this one."""

    observation_id: UUID
    company_id: UUID
    site_id: UUID
    device_id: UUID
    image_id: UUID
    observed_at: datetime
    image_url: str
    judge_attempts: int

    @property
    def is_ours(self) -> bool:
        """An invented address must not open other objects of the bucket."""
        return self.image_url.startswith(f"camera/{self.company_id}/")


@dataclass(frozen=True, slots=True)
class Series:
    """A dish with the image that later ones are compared with."""

    series_id: UUID
    circle_x: float
    circle_y: float
    circle_radius: float
    reference: bytes

    @property
    def arguments(self) -> dict[str, Any]:
        """As worker.assess takes them."""
        circle = [self.circle_x, self.circle_y, self.circle_radius]
        return {"circle": circle, "reference": base64.b64encode(self.reference).decode()}


class Dish(msgspec.Struct, frozen=True, kw_only=True):
    """How a dish changed (farm/vision/dishes/change.py, which only the worker loads)."""

    change: float | None = None
    quality: float = 0.0
    problem: str | None = None
    reference: "NewReference | None" = None


class NewReference(msgspec.Struct, frozen=True, kw_only=True):
    circle: tuple[float, float, float]
    image: bytes


class Assessed(msgspec.Struct, frozen=True, kw_only=True):
    quality: Quality
    dish: Dish = Dish()
    thumbnail_url: str | None = None


class OtherReferenceError(Exception):
    """Another image became the dish's reference meanwhile: this one is to be compared with it."""


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
        series = await _series(pool, observation)
        try:
            assessed = await assess(bucket, observation, series)
        except objects.UNAVAILABLE as error:
            log.get(NAME).warning("observations.store_away", error=db.first_line(error))
            await release(pool, observation)
            break
        except WorkerGoneError as error:
            # Claimed again when the claim expires; the attempt counts.
            log.get(NAME).warning("observations.decoder_gone", error=str(error))
            break
        crash.here("observations.after_put")
        try:
            await store_assessed(pool, observation, assessed, series)
        except OtherReferenceError:
            await release(pool, observation, retry_s=0)
            continue
        ASSESSED.labels(verdict=assessed.quality.grade).inc()
        count += 1
    return {"count": count}


async def assess(
    bucket: objects.Bucket, observation: Observation, series: Series | None
) -> Assessed:
    """Quality, change of the dish, and the key of the thumbnail. Raises WorkerGoneError."""
    if observation.judge_attempts > MAX_ATTEMPTS:
        return Assessed(quality=Quality(grade="unreadable", reason=GIVEN_UP))
    data = await bucket.find(observation.image_url) if observation.is_ours else None
    if data is None:
        return Assessed(quality=Quality(grade="missing", reason=NOT_HERE))
    arguments = series.arguments if series else {"circle": None, "reference": None}
    try:
        made = await asyncio.to_thread(WORKER.call, "assess", data, limits=LIMITS, **arguments)
    except InputRejectedError as error:
        sha256 = hashlib.sha256(data).hexdigest()
        quality = Quality(
            grade="unreadable", reason=str(error), size_bytes=len(data), sha256=sha256
        )
        return Assessed(quality=quality)
    key = gallery.small_key(observation.image_url) if made.data else None
    if key is not None:
        await bucket.put(key, made.data, content_type=pictures.JPEG)
    return msgspec.convert({**made.facts, "thumbnail_url": key}, Assessed)


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
            returning o.observation_id, o.company_id, o.site_id, o.device_id, o.image_id,
              o.observed_at, i.image_url, o.judge_attempts
            """,
            (CLAIM_S, CLAIM_S),
        )
        return await cursor.fetchone()


async def _series(pool: db.Pool, observation: Observation) -> Series | None:
    """The dish that the image shows; None if it is the first of one."""
    async with db.transaction(pool) as tx:
        rows = await db.fetch_as(
            tx,
            Series,
            """
            select series_id, circle_x, circle_y, circle_radius, reference from dish_series
            where device_id = %s and site_id = %s and (ended_at is null or ended_at > %s)
            order by ended_at nulls last limit 1
            """,
            (observation.device_id, observation.site_id, observation.observed_at),
        )
    return rows[0] if rows else None


async def release(pool: db.Pool, observation: Observation, *, retry_s: float = RETRY_S) -> None:
    """The attempt does not count; other images go first, if the store rejects only this one."""
    async with db.transaction(pool) as tx:
        await tx.execute(
            """
            update petri_observations set judge_attempts = judge_attempts - 1,
              judging_until = fn_now() + %s * interval '1 second'
            where observation_id = %s and quality is null
            """,
            (retry_s, observation.observation_id),
        )


async def store_assessed(
    pool: db.Pool, observation: Observation, assessed: Assessed, series: Series | None
) -> None:
    """Store the results, unless another process has. Raises OtherReferenceError."""
    values = asdict(assessed.quality)
    measures = values.pop("measures") or dict.fromkeys(field.name for field in fields(Measures))
    dish = assessed.dish
    own = {
        "thumbnail_url": assessed.thumbnail_url,
        "observation_id": observation.observation_id,
        "covered_change": dish.change,
        "covered_quality": dish.quality if dish.change is not None else None,
        "dish_problem": dish.problem,
    }
    async with db.transaction(pool) as tx:
        series_id = series.series_id if series else None
        if dish.reference is not None:
            series_id = await _begin_series(tx, observation, dish.reference)
        await tx.execute(
            """
            update petri_observations
            set quality = %(grade)s, quality_reason = %(reason)s, size_bytes = %(size_bytes)s,
              sha256 = %(sha256)s, width_px = %(width_px)s, height_px = %(height_px)s,
              sharpness = %(sharpness)s, brightness = %(brightness)s, dark_share = %(dark_share)s,
              bright_share = %(bright_share)s, thumbnail_url = %(thumbnail_url)s,
              dish_series_id = %(series_id)s, covered_change = %(covered_change)s,
              covered_quality = %(covered_quality)s, dish_problem = %(dish_problem)s,
              judged_at = fn_now(), judging_until = null
            where observation_id = %(observation_id)s and quality is null
            """,
            values | measures | own | {"series_id": series_id},
        )


async def _begin_series(
    tx: db.Connection, observation: Observation, reference: NewReference
) -> UUID:
    rows = await db.fetch_all(
        tx,
        """
        insert into dish_series (series_id, company_id, site_id, device_id, reference_image_id,
          started_at, circle_x, circle_y, circle_radius, reference, created_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now())
        on conflict (device_id, site_id) where ended_at is null do nothing
        returning series_id
        """,
        ids.new(),
        observation.company_id,
        observation.site_id,
        observation.device_id,
        observation.image_id,
        observation.observed_at,
        *reference.circle,
        reference.image,
    )
    if not rows:
        raise OtherReferenceError
    series_id: UUID = rows[0][0]
    return series_id
