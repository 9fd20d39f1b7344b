"""Vision at the edge: one result for every session and for every image without one.

media_objects --trigger--> inference_jobs --> [vision] --worker process--> inference_results
                                                  |--inference.completed--> sync_outbox

A job is made in the transaction that stores an image, so none is forgotten, whatever comes first:
the image or the session's events. It is done when the session has ended and every image that its
device counted is here, or some time after the last image. Images are looked at in a process of its
own (worker.py), which ends when there is nothing to do: this one loads no image library. What is
inferred is compared with the scale, and the scale teaches the next model (training.py).
"""

import asyncio
import importlib.util

import prometheus_client

from farmiq.config import EdgeSettings
from farmiq.edge.bucket import bucket_of
from farmiq.edge.daily import daily_job, retention_job
from farmiq.edge.vision import models, store, training
from farmiq.edge.vision.handlers import Inference
from farmiq.edge.vision.models import ModelFiles
from farmiq.edge.vision.training import Training
from farmiq.plumbing import db, http
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime.schedule import Job, run_repeatedly
from farmiq.plumbing.storage import objects

NAME = "edge-vision-inference"
MEASURE_S = 15.0
SCORE_S = 5.0
# Longer than any delay of a job.
MAX_DELAY_HOURS = 1.0

PENDING = prometheus_client.Gauge("farmiq_vision_pending", "Jobs of inference that are not done")
OLDEST = prometheus_client.Gauge(
    "farmiq_vision_oldest_seconds", "How long the oldest of them has had its last image"
)


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    bucket = bucket_of(settings)
    why = _why_not(settings)
    if bucket is None or why:
        server.note("vision", lambda: f"looks at no images: {why}")
        await asyncio.Event().wait()
        return
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, min_size=0, max_size=3) as pool,
        asyncio.TaskGroup() as group,
    ):
        server.ready("vision.database", lambda: db.problem(pool))
        for job in _jobs(settings, pool, bucket, server):
            group.create_task(run_repeatedly(job))


def _why_not(settings: EdgeSettings) -> str | None:
    if settings.s3_url is None:
        return "FARMIQ_EDGE_S3_URL is not set"
    # Asked for, not loaded: only the worker does that.
    if not all(map(importlib.util.find_spec, ("cv2", "numpy", "onnx", "onnxruntime"))):
        return "its libraries are not installed: pip install 'farmiq[vision]'"
    return None if settings.vision else "VISION is false"


def _jobs(
    settings: EdgeSettings, pool: db.Pool, bucket: objects.Bucket, server: http.HttpServer
) -> list[Job]:
    files = ModelFiles(settings.vision_models(), bucket)
    inference = Inference(settings, pool, bucket, files)
    teacher = Training(settings, pool, files)
    # No reason to take the edge out of service: jobs wait until images can be looked at.
    server.note("vision.images", lambda: inference.problem)
    days = settings.weighvision_days

    async def purge_models() -> dict[str, object]:
        return {"count": await models.purge(pool, files)}

    return [
        Job("vision.infer", settings.vision_round_s, inference.infer_pending),
        Job("vision.score", SCORE_S, lambda: training.score(pool)),
        Job("vision.train", settings.vision_train_round_s, teacher.train_due),
        daily_job(pool, settings, "vision.train_all", teacher.train_all),
        Job("vision.measure", MEASURE_S, lambda: measure(pool)),
        retention_job(
            pool,
            settings,
            "vision.retention",
            Retention("inference_jobs", "done_at", days, "t.done_at is not null"),
            Retention("inference_results", "occurred_at", days),
            Retention("vision_days", "day", days),
        ),
        daily_job(pool, settings, "vision.models_retention", purge_models),
    ]


async def measure(pool: db.Pool) -> dict[str, object]:
    """Set the gauges, and free jobs that a wrong clock has put off."""
    async with db.transaction(pool) as tx:
        count = await store.reset_future_attempts(tx, hours=MAX_DELAY_HOURS)
        pending, oldest_s = await store.counts(tx)
    PENDING.set(pending)
    OLDEST.set(oldest_s)
    return {"count": count}
