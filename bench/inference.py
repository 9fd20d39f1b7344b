"""P28: edge ingest while images are looked at beside it, and without.

off         the gateway alone, at full speed
inference   as many weighings with an image wait as `edge-vision-inference` can do meanwhile; it is
            a process of its own, so nothing but its worker's priority gives way to ingress

It counts only if at least five images a second were finished in the same seconds.
"""

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import psycopg

from bench import ingest, load, machine, results
from bench.ingest import Bench
from bench.results import Result
from farmiq import config
from farmiq.edge.telemetry import jobs
from farmiq.lab import stack
from farmiq.lab.simulate import pictures
from farmiq.lab.stack import mosquitto
from farmiq.plumbing import db, ids, migrations
from farmiq.plumbing.storage.objects import Bucket
from farmiq.services import SQL

SERVICE = "edge-vision-inference"
ENGINES = ("postgres-edge", "mqtt-edge", "s3")
STATION = "scale-1"
WANTED_PER_S = 5.0
DIFFERENT = 20
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int = 3
    events: int = 40_000
    # For each round: more than are finished in it.
    images: int = 600


async def measure(plan: Plan, say: Say) -> list[Result]:
    """P28; saved to bench/results.json and docs/develop/bench.md."""
    here = machine.description()
    root = config.state_dir() / "stacks" / "bench-inference"
    stack.remove(root)  # what an interrupted run has left
    programs = mosquitto.find(config.state_dir() / "engines", say=say)
    off, on, frames_per_s = [], [], []
    with stack.start(root, engines=ENGINES, say=say) as engines:
        bench = Bench(engines, programs, engines)
        await _prepare(bench)
        for _ in range(plan.rounds):
            off.append((await ingest.ours(bench, plan.events)).per_s)
            await _images(bench, plan.images)
            async with _inference(bench):
                on.append((await ingest.ours(bench, plan.events)).per_s)
                frames_per_s.append(_frames_per_s(bench))
            say(
                f"alone {off[-1]:>9,.0f}/s, with inference {on[-1]:>9,.0f}/s "
                f"and {frames_per_s[-1]:.1f} images/s"
            )
    stack.remove(root)
    found = results.of_runs(
        "P28",
        "edge ingest with inference of 5 images/s or more beside it / without",
        [with_ / without for with_, without in zip(on, off, strict=True)],
        target=">= 0.9",
        detail={
            "with, events/s": [round(each) for each in on],
            "without, events/s": [round(each) for each in off],
            "images finished/s": [round(each, 1) for each in frames_per_s],
            "events": plan.events,
        },
    )
    found = replace(found, sound=statistics.median(frames_per_s) >= WANTED_PER_S)
    results.save([found], machine=here)
    return [found]


async def _prepare(bench: Bench) -> None:
    migrations.apply(bench.admin_url, SQL["edge"])
    await load.register(bench.admin_url, load.devices())
    async with db.pool(bench.engines.environment["FARMIQ_EDGE_DB_URL"], name="bench") as pool:
        await jobs.create_partitions(pool, retention_days=90)
    async with ingest.gateway(bench.engines, {}) as running:
        await running.said(b'"FARMIQ_UP"')  # the log is there
    key = "empty-scale"
    empty = pictures.render(station_id=STATION, number=0, at=datetime.now(UTC))
    await _bucket(bench).put(key, empty, content_type="image/jpeg")
    with psycopg.connect(bench.admin_url) as connection:
        connection.execute(
            "insert into vision_references values (%s, %s, %s, %s, now())",
            (load.TENANT_ID, STATION, ids.new(), key),
        )


async def _images(bench: Bench, count: int) -> None:
    """So many weighings of one image each, which nobody has looked at yet."""
    at = datetime.now(UTC)
    shown = [
        pictures.render(
            station_id=STATION, number=number, at=at, animal=number, weight_kg=60 + 3 * number
        )
        for number in range(DIFFERENT)
    ]
    keys = [ids.new() for _ in range(count)]
    bucket, slots = _bucket(bench), asyncio.Semaphore(8)

    async def put(number: int) -> None:
        async with slots:
            data = shown[number % DIFFERENT]
            await bucket.put(str(keys[number]), data, content_type="image/jpeg")

    await asyncio.gather(*map(put, range(count)))
    with psycopg.connect(bench.admin_url) as connection:
        connection.execute("truncate inference_jobs, inference_results, media_objects")
        connection.cursor().executemany(
            """
            insert into media_objects (id, tenant_id, farm_id, barn_id, device_id, session_id,
              bucket, object_key, mime_type, size_bytes, captured_at, upload_status, stored_at)
            values (%(id)s, %(tenant)s, 'f-1', 'b-1', %(device)s, gen_random_uuid(), 'farmiq',
              %(id)s::text, 'image/jpeg', 1, now(), 'stored', fn_now())
            """,
            [{"id": key, "tenant": load.TENANT_ID, "device": STATION} for key in keys],
        )


@contextlib.asynccontextmanager
async def _inference(bench: Bench) -> AsyncIterator[None]:
    """The service, which has begun to look at images."""
    environment = {
        **bench.engines.environment,
        "FARMIQ_EDGE_HTTP_PORT": str(ingest.free_port()),
        "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
        "FARMIQ_EDGE_KEY_FILE": "none",
        "VISION_WAIT_SECONDS": "0.1",
        "VISION_MODELS_DIR": str(bench.engines.root / "vision-models"),
    }
    async with ingest.service(bench.engines.root, SERVICE, environment) as running:
        await ingest.Storing(SERVICE, running, bench.admin_url, "inference_results").all_taken(1)
        yield
        running.check()


def _frames_per_s(bench: Bench) -> float:
    """Results in the seconds in which readings came."""
    with psycopg.connect(bench.admin_url) as connection:
        row = connection.execute(
            """
            with taken as (select min(created_at) as began, max(created_at) as ended
              from sync_outbox where event_type = 'telemetry.ingested')
            select count(r.id) / greatest(extract(epoch from t.ended - t.began), 0.001)::float8
            from taken t left join inference_results r on r.occurred_at between t.began and t.ended
            group by t.began, t.ended
            """
        ).fetchone()
    return float(row[0]) if row else 0.0


def _bucket(bench: Bench) -> Bucket:
    return Bucket(bench.engines.environment["FARMIQ_EDGE_S3_URL"])
