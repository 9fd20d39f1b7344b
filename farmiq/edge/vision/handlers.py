"""What one job does: look at its images, estimate, and store the one result with its event.

inference_jobs --claim--> images of the bucket --sandbox--> measurements --> estimate
  --> inference_results, sync_outbox (inference.completed), one transaction

Every step may be repeated: nothing is written before the last one. An image that breaks the worker
is a frame that cannot be used; a worker that does not even answer a ping says nothing of the image,
and the job is tried again later.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime

import msgspec
import prometheus_client

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import outbox
from farmiq.edge.vision import models, monitoring, store
from farmiq.edge.vision.models import ACTIVE, SHADOW, CameraScope, ModelFiles, ModelRow
from farmiq.edge.vision.sandboxed import call
from farmiq.edge.vision.store import Frame, InferenceJob, Result, StoredImage
from farmiq.farm.vision.estimate import Estimate
from farmiq.farm.vision.features import Measurement
from farmiq.farm.vision.manifest import NO_MODEL
from farmiq.messages import bus, ids, weighvision
from farmiq.messages.bus import BusEvent
from farmiq.messages.inference import COMPLETED, InferenceCompleted
from farmiq.messages.topics import Place
from farmiq.plumbing import db, log
from farmiq.plumbing.sandbox import InputRejectedError, WorkerGoneError
from farmiq.plumbing.storage import objects

LEASE_S = 180.0
# So often a job may end the whole service before it is not tried again.
MAX_ATTEMPTS = 5
RETRY_S = 30.0
# While ingress lags nothing is looked at, but not for ever: what is never done helps nobody.
LAG_S, WAITING = 2.0, 2000.0
MAX_LAG_WAIT_S = 30.0

RESULTS = prometheus_client.Counter(
    "farmiq_vision_results_total", "Results of inference", ["outcome"]
)
FRAMES = prometheus_client.Counter(
    "farmiq_vision_frames_total", "Images that were looked at", ["outcome"]
)


class Inference:
    def __init__(
        self, settings: EdgeSettings, pool: db.Pool, bucket: objects.Bucket, files: ModelFiles
    ) -> None:
        self._pool, self._bucket, self._files = pool, bucket, files
        self._wait_s = settings.vision_wait_s
        self._frame_s = 1 / settings.vision_frames_per_second
        self._log = log.get("edge-vision-inference")

    async def problem(self) -> str | None:
        """Why a job waits to be tried again, as the table of jobs has it."""
        try:
            async with self._pool.connection(timeout=2.0) as connection:
                return await store.retried_for(connection)
        except db.UNAVAILABLE:
            return None  # vision.database says it

    async def infer_pending(self) -> dict[str, object]:
        """Do all jobs that are ready, one after the other."""
        count = 0
        while await self.infer_next():
            count += 1
        return {"count": count}

    async def infer_next(self) -> bool:
        """Do the next job; False if there is none, or if what it needs is unavailable."""
        async with db.transaction(self._pool) as tx:
            job = await store.claim(tx, wait_s=self._wait_s, lease_s=LEASE_S)
        if job is None:
            return False
        crash.here("vision.after_claim")
        try:
            await self._infer(job)
        except (*objects.UNAVAILABLE, WorkerGoneError) as error:
            problem = f"images cannot be looked at: {db.first_line(error)}"
            self._log.warning("vision.away", error=problem)
            async with db.transaction(self._pool) as tx:
                await store.release(tx, job, error=problem, after_s=RETRY_S)
            return False
        return True

    async def _infer(self, job: InferenceJob) -> None:
        async with self._pool.connection() as connection:
            images = await store.images(connection, job)
        trace_id = next((image.trace_id for image in images if image.trace_id), None)
        if job.attempt_count > MAX_ATTEMPTS:
            result = Result(estimate=silent("set_aside", len(images)))
        elif not images:
            result = Result(estimate=silent("no_image", 0))
        elif job.session_id is None:
            result = await self._image_without_session(job, images[0])
        else:
            result = await self._session(job, images)
        await self._complete(job, replace(result, trace_id=trace_id))

    async def _image_without_session(self, job: InferenceJob, image: StoredImage) -> Result:
        """It gets no weight: it is a reference of the scale, or one of a series."""
        if image.purpose == weighvision.EMPTY_SCALE:
            return Result(estimate=await self._empty_scale(job, image))
        data = await self._bucket.find(image.object_key)
        if data is None:
            return Result(estimate=silent("not_in_the_store", 1))
        async with self._limited_rate(), self._pool.connection() as connection:
            observed = await monitoring.observe(connection, job, image, data)
        FRAMES.labels(outcome="unreadable" if observed.problem else "monitored").inc()
        reason = f"not_decodable: {observed.problem}"[:500] if observed.problem else "no_session"
        return Result(estimate=silent(reason, 1), monitored=(image, observed))

    async def _empty_scale(self, job: InferenceJob, image: StoredImage) -> Estimate:
        """It is stored as the reference that animals are compared with."""
        try:
            data = await self._bucket.find(image.object_key)
            async with self._limited_rate():
                facts = (await call("reference", data or b"")).facts
        except InputRejectedError as error:
            return silent(f"not_decodable: {error}", 1)
        if facts["problem"]:
            return silent(facts["problem"], 1)
        async with db.transaction(self._pool) as tx:
            await store.set_reference(tx, job, image)
        return silent("empty_scale", 1)

    async def _session(self, job: InferenceJob, images: list[StoredImage]) -> Result:
        async with self._pool.connection() as connection:
            _, _, device_id = await store.owner(connection, job)
            key = await store.reference_key(connection, job.tenant_id, device_id)
        reference = await self._bucket.find(key) if key else None
        measurements = []
        for image in images:
            async with db.transaction(self._pool) as tx:
                await store.renew(tx, job, lease_s=LEASE_S)
            measurements.append(await self._measure(image, reference or b""))
        crash.here("vision.after_measure")
        async with self._pool.connection() as connection:
            scope = await store.scope(connection, job, images[0].captured_at)
            used = await models.in_use(connection, scope)
        active, shadow = used.get(ACTIVE), used.get(SHADOW)
        of_active = await self._estimate(scope, measurements, active)
        of_shadow = await self._estimate(scope, measurements, shadow) if shadow else None
        model = active or shadow
        if active is None and of_shadow is not None and of_active.reason == "no_model":
            reason = of_shadow.reason if of_shadow.predicted_weight_kg is None else "shadow"
            of_active = msgspec.structs.replace(of_active, reason=reason)
        return Result(
            estimate=of_active,
            shadow=of_shadow,
            frames=[
                Frame(media_id=image.id, problem=measured.problem, quality=measured.quality)
                for image, measured in zip(images, measurements, strict=True)
            ],
            species=scope.species or None,
            model=model,
        )

    async def _estimate(
        self, scope: CameraScope, measurements: list[Measurement], model: ModelRow | None
    ) -> Estimate:
        """By this model; without one the measurements are stored, for training."""
        folder = await self._files.folder(scope.tenant_id, model.version) if model else None
        data = msgspec.json.encode(measurements)
        try:
            made = await call("estimate", data, folder=str(folder) if folder else None)
        except InputRejectedError as error:
            self._log.error("vision.model_unusable", name=scope.camera_id, error=str(error))
            made = await call("estimate", data, folder=None)
            if made.facts["reason"] == "no_model":
                made.facts["reason"] = "model_unusable"
        return msgspec.convert(made.facts, Estimate)

    async def _measure(self, image: StoredImage, reference: bytes) -> Measurement:
        """What is seen in one image."""
        data = await self._bucket.find(image.object_key)
        if data is None:
            return _unusable("not_in_the_store")
        async with self._limited_rate():
            try:
                made = await call("measure", reference + data, reference_bytes=len(reference))
                measured = msgspec.convert(made.facts, Measurement)
            except InputRejectedError as error:
                measured = _unusable(f"not_decodable: {error}")
        FRAMES.labels(outcome=(measured.problem or "used").partition(":")[0]).inc()
        return measured

    @contextlib.asynccontextmanager
    async def _limited_rate(self) -> AsyncIterator[None]:
        """Around each image: begins when ingress has caught up, at most so many a second."""
        await self._wait_for_ingress()
        began_at = asyncio.get_running_loop().time()
        yield
        took_s = asyncio.get_running_loop().time() - began_at
        await asyncio.sleep(max(0.0, self._frame_s - took_s))

    async def _wait_for_ingress(self) -> None:
        waited_s = 0.0
        while waited_s < MAX_LAG_WAIT_S and ingress_lags():
            await asyncio.sleep(0.5)
            waited_s += 0.5

    async def _complete(self, job: InferenceJob, result: Result) -> None:
        async with db.transaction(self._pool) as tx:
            if not await store.finish(tx, job):
                return
            place = Place(job.tenant_id, *await store.owner(tx, job))
            at = await store.add_result(tx, job, result)
            await outbox.append(tx, [completed_event(job, place, result, at=at)])
            if result.monitored:
                await monitoring.record(tx, job, *result.monitored, now=at)
            crash.here("vision.before_commit")
        crash.here("vision.after_commit")
        estimate = result.estimate
        outcome = "none" if estimate.predicted_weight_kg is None else "estimate"
        RESULTS.labels(outcome=outcome).inc()
        self._log.info(
            "vision.inferred",
            session_id=str(job.session_id or ""),
            trace_id=result.trace_id,
            status=outcome,
            reason=estimate.reason,
        )


def silent(reason: str, frames_total: int) -> Estimate:
    """No estimate, and why."""
    return Estimate(
        predicted_weight_kg=None,
        low_kg=None,
        high_kg=None,
        confidence=0.0,
        model_version=NO_MODEL,
        reason=reason,
        frames_used=0,
        frames_total=frames_total,
        features=None,
    )


def _unusable(problem: str) -> Measurement:
    return Measurement(features=None, quality={}, problem=problem[:500])


def completed_event(job: InferenceJob, place: Place, result: Result, *, at: datetime) -> BusEvent:
    """The one event of a result: its id follows from the job's (C-93)."""
    estimate, shadow = result.estimate, result.shadow
    payload = InferenceCompleted(
        inference_result_id=job.id,
        predicted_weight_kg=estimate.predicted_weight_kg,
        confidence=estimate.confidence,
        model_version=result.model_version,
        low_kg=estimate.low_kg,
        high_kg=estimate.high_kg,
        reason=estimate.reason,
        is_shadow=result.is_shadow,
        shadow_weight_kg=shadow.predicted_weight_kg if shadow else None,
        frames_used=estimate.frames_used,
        n_train=result.model.n_train if result.model else None,
        cv_mape=result.model.cv_mape if result.model else None,
        baseline_mape=result.model.baseline_mape if result.model else None,
        media_id=job.media_id,
    )
    return bus.own_event(
        COMPLETED,
        place,
        payload,
        event_id=ids.derived(job.created_at, COMPLETED, job.tenant_id, str(job.id)),
        occurred_at=at,
        trace_id=result.trace_id,
        session_id=job.session_id,
    )


_INGRESS = prometheus_client.REGISTRY.restricted_registry(
    ["farmiq_ingress_lag_seconds", "farmiq_ingress_waiting"]
)


def ingress_lags() -> bool:
    """Whether ingress falls behind; known only if it runs in this process."""
    values = {
        sample.name: sample.value for metric in _INGRESS.collect() for sample in metric.samples
    }
    return (
        values.get("farmiq_ingress_lag_seconds", 0.0) > LAG_S
        or values.get("farmiq_ingress_waiting", 0.0) > WAITING
    )
