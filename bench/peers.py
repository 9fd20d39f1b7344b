"""Other queues on PostgreSQL, in their own environment: jobs taken and finished per second.

Run by bench/outbox.py with the Python of a throwaway environment; prints one JSON line. Nothing of
FarmIQ is imported here, and nothing of these is a dependency of ours.
"""

import asyncio
import importlib.metadata
import json
import sys
import time
import uuid
from datetime import timedelta
from typing import Any

LONG = timedelta(minutes=10)
PAYLOAD = json.dumps({"metric_type": "temperature", "metric_value": 1.5, "unit": "C"})


async def pgqueuer(url: str, jobs: int, batch: int) -> dict[str, float]:
    """Its worker, jobs that do nothing: as it comes, with batches like ours; its queries alone."""
    import asyncpg  # type: ignore[import-not-found]  # noqa: PLC0415
    from pgqueuer import qm  # type: ignore[import-not-found]  # noqa: PLC0415
    from pgqueuer import queries as q  # noqa: PLC0415

    connection = await asyncpg.connect(url)
    try:
        queue = q.Queries.from_asyncpg_connection(connection)
        await queue.install()
        await _enqueue(queue, jobs)
        await connection.execute("vacuum analyze")
        limits = {"job": q.EntrypointExecutionParameter(concurrency_limit=0)}
        started = time.perf_counter()
        while taken := await queue.dequeue(batch, limits, uuid.uuid4(), None, LONG):
            await queue.log_jobs([(job, "successful", None) for job in taken])
        alone = jobs / (time.perf_counter() - started)

        return {
            "rate": await _worked(queue, connection, jobs, qm.QueueManager(queue), {}),
            "with our batch": await _worked(
                queue, connection, jobs, qm.QueueManager(queue), {"batch_size": batch}
            ),
            "queries alone": alone,
        }
    finally:
        await connection.close()


async def _worked(
    queue: Any, connection: Any, jobs: int, worker: Any, options: dict[str, int]
) -> float:
    """Jobs per second of its worker, with its own defaults but for these options."""
    from pgqueuer import types  # noqa: PLC0415

    await _enqueue(queue, jobs)
    await connection.execute("vacuum analyze")

    @worker.entrypoint("job")  # type: ignore[untyped-decorator]
    async def job(_: object) -> None: ...

    started = time.perf_counter()
    await worker.run(mode=types.QueueExecutionMode.drain, **options)
    return jobs / (time.perf_counter() - started)


async def _enqueue(queue: Any, jobs: int) -> None:
    for start in range(0, jobs, 1000):
        count = min(1000, jobs - start)
        await queue.enqueue(["job"] * count, [PAYLOAD.encode()] * count, [0] * count)


async def procrastinate(url: str, jobs: int) -> dict[str, float]:
    """One by one, fetch_job and finish_job: it has no batches."""
    import procrastinate as p  # type: ignore[import-not-found]  # noqa: PLC0415

    app = p.App(connector=p.PsycopgConnector(conninfo=url))

    @app.task(name="job")  # type: ignore[untyped-decorator]
    async def job(**_: object) -> None: ...

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await job.batch_defer_async(*[json.loads(PAYLOAD) for _ in range(jobs)])
        worker = await app.job_manager.register_worker()
        done = 0
        started = time.perf_counter()
        while taken := await app.job_manager.fetch_job(queues=None, worker_id=worker):
            await app.job_manager.finish_job(taken, p.jobs.Status.SUCCEEDED, delete_job=False)
            done += 1
        return {"rate": done / (time.perf_counter() - started)}


async def main() -> None:
    which, url, jobs, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    work = pgqueuer(url, jobs, batch) if which == "pgqueuer" else procrastinate(url, jobs)
    print(json.dumps({**await work, "version": importlib.metadata.version(which)}))


if __name__ == "__main__":
    asyncio.run(main())
