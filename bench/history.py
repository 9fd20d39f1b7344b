"""Readings in Parquet files: bytes of each, and a sensor's 90 days over both tiers (P35).

Every sensor has a reading a minute for 90 days, made by SQL, with ids and trace ids that no
compression makes smaller. The months before the last one are archived. The same questions are
asked before, of the database alone, and after: a chart of 90 days, which rollups answer in both
cases, and every single reading of 90 days.
"""

import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg

from bench import machine, results
from bench.results import Result
from farmiq import config, services
from farmiq.cloud import series
from farmiq.cloud.history import History
from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.cloud.series import KnownSeries
from farmiq.cloud.telemetry import archive, jobs
from farmiq.farm import points
from farmiq.lab import stack
from farmiq.plumbing import db, migrations
from farmiq.plumbing.storage import objects

TENANT, METRIC, DAYS = "bench", "temperature", 90
PER_DEVICE = DAYS * 1440
ROUNDS = 5
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """About so many readings, of whole sensors."""

    readings: int = 1_000_000

    @property
    def devices(self) -> int:
        return max(1, round(self.readings / PER_DEVICE))


async def measure(plan: Plan, say: Say) -> list[Result]:
    root = config.state_dir() / "stacks" / "bench-history"
    stack.remove(root)  # what an interrupted run has left
    with stack.start(root, engines=("postgres-cloud", "s3"), say=say) as engines:
        admin = engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
        url = engines.environment["FARMIQ_CLOUD_DB_URL"]
        migrations.apply(admin, services.SQL["cloud"])
        archived = History(objects.Bucket(engines.environment["FARMIQ_CLOUD_S3_URL"]))
        async with db.pool(url, name="bench", max_size=4) as pool:
            await jobs.create_partitions(pool)
            began_s = time.monotonic()
            token = _fill(admin, plan.devices)
            say(f"filled in       {time.monotonic() - began_s:>9,.0f} s")
            before = await _questions(pool, token, archived)
            bytes_before, rows = _size(admin)
            say(f"database        {bytes_before / rows:>9,.1f} bytes a reading, {rows:,} of them")
            began_s, cpu_s = time.monotonic(), time.process_time()
            await archive.archive_months(pool, archived, hot_months=1)
            spent_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
            after = await _questions(pool, token, archived)
            file_bytes, file_rows = _files(admin)
        left, left_rows = _size(admin)
    stack.remove(root)
    per_reading = file_bytes / file_rows
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    detail = {
        "readings": rows,
        "archived": file_rows,
        "bytes in the database": round(bytes_before / rows, 1),
        "bytes in files": round(per_reading, 1),
        "left in the database": left_rows,
        "bytes left in the database": left,
        "archived a second": round(file_rows / spent_s),
        "CPU µs a reading": round(cpu_s / file_rows * 1e6, 2),
        "peak memory of this process, MB": round(peak_mb),
        **{f"ms, {name}, database alone": round(ms, 1) for name, ms in before.items()},
        **{f"ms, {name}, both tiers": round(ms, 1) for name, ms in after.items()},
    }
    for name, value in detail.items():
        say(f"history         {name:<44} {value:>14,}")
    kept = [
        results.of_runs(
            "P35", "bytes of a reading in a file / in the database",
            [per_reading / (bytes_before / rows)], target="<= 0.25", detail=detail,
        )
    ]  # fmt: skip
    results.save(kept, machine=machine.description())
    return kept


def _fill(url: str, devices: int) -> str:
    """The company with its readings and hours; returns a sign-in to it."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    values = {"tenant": TENANT, "metric": METRIC, "now": now, "count": PER_DEVICE}
    with psycopg.connect(url, autocommit=True) as owner:
        company = add_company(owner, TENANT, name=TENANT)
        add_user(owner, "a@b.c", company_id=company, password="long enough 1")  # noqa: S106
        owner.execute(_OPEN)
        for device in range(devices):
            owner.execute(_SENSOR, {**values, "device": f"sensor-{device:05}"})
        owner.execute(_CLOSE)
        owner.execute("vacuum analyze")
        return open_sign_in(owner, "a@b.c", lasts=timedelta(hours=12))


# Ids have no order: 100 million of them, one after another, into an index take hours.
_OPEN = """
    set maintenance_work_mem = '1GB';
    alter table telemetry_readings disable trigger user;
    alter table telemetry_readings drop constraint telemetry_readings_pkey;
    drop index telemetry_readings_device_idx
"""
_CLOSE = """
    alter table telemetry_readings add constraint telemetry_readings_pkey
      primary key (tenant_id, event_id, occurred_at);
    create index telemetry_readings_device_idx
      on telemetry_readings (tenant_id, device_id, metric_type, occurred_at desc);
    alter table telemetry_readings enable trigger user
"""
_SENSOR = """
    with stored as (
      insert into telemetry_readings (tenant_id, event_id, farm_id, barn_id, device_id,
        metric_type, metric_value, unit, occurred_at, trace_id, stored_at)
      select %(tenant)s, md5(random()::text || n || %(device)s)::uuid, 'farm-1', 'barn-1',
        %(device)s, %(metric)s, round((20 + 5 * sin(n / 229.0) + random()) * 10) / 10, 'C', at,
        md5(random()::text), at + interval '2 seconds' * random()
      from generate_series(1, %(count)s) n
        cross join lateral (select %(now)s::timestamptz - n * interval '1 minute' as at) t
      returning *
    ), latest as (
      insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, barn_id, event_id,
        metric_value, unit, occurred_at, reading_count)
      select tenant_id, device_id, metric_type, 'farm-1', 'barn-1', gen_random_uuid(), 20, 'C',
        max(occurred_at), count(*)
      from stored group by 1, 2, 3
    )
    insert into telemetry_agg (id, tenant_id, farm_id, barn_id, device_id, "window",
      bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
      sum_value, count)
    select gen_random_uuid(), tenant_id, 'farm-1', 'barn-1', device_id, '1h', at,
      at + interval '1 hour', metric_type, 'C', avg(metric_value), min(metric_value),
      max(metric_value), sum(metric_value::numeric), count(*)
    from stored, lateral (select date_trunc('hour', occurred_at) as at) h
    group by tenant_id, device_id, metric_type, at
"""


async def _questions(pool: db.Pool, token: str, archived: History) -> dict[str, float]:
    """Milliseconds of each question, the median; asked by a person, as the API does."""
    end = datetime.now(UTC)
    begin = end - timedelta(days=DAYS)
    sensor = KnownSeries("sensor-00000", METRIC, None)
    step = points.finest(end - begin, series=1, budget=1000, window=None)
    assert step is not None  # noqa: S101

    async def chart(connection: db.Connection) -> int:
        found = await series.buckets(connection, [(sensor, step)], begin=begin, end=end)
        return len(found)

    async def every_reading(connection: db.Connection) -> int:
        found = await series.readings(
            connection, [sensor], begin=begin, end=end, limit=PER_DEVICE + 1, archived=archived
        )
        return len(found)

    async def one_day(connection: db.Connection) -> int:
        first = begin + timedelta(days=10)
        found = await series.readings(
            connection, [sensor], begin=first, end=first + timedelta(days=1), limit=5000,
            archived=archived,
        )  # fmt: skip
        return len(found)

    return {
        "chart of 90 days by rollups": await _timed(pool, token, chart),
        "all readings of 90 days": await _timed(pool, token, every_reading),
        "all readings of a day 80 days ago": await _timed(pool, token, one_day),
    }


async def _timed(
    pool: db.Pool, token: str, ask: Callable[[db.Connection], Awaitable[int]]
) -> float:
    spent_ms = []
    for _ in range(ROUNDS):
        async with db.transaction(pool) as tx:
            await tx.execute("set local role authenticated")
            await tx.execute("select begin_session(%s)", (token,))
            began_s = time.monotonic()
            count = await ask(tx)
            spent_ms.append((time.monotonic() - began_s) * 1000)
        if count == 0:
            raise RuntimeError("nothing was found: there is nothing to measure")
    return statistics.median(spent_ms)


def _size(url: str) -> tuple[int, int]:
    """Bytes of all partitions with their indexes, and rows."""
    with psycopg.connect(url) as owner:
        row = owner.execute(
            """
            select (select sum(pg_total_relation_size(inhrelid)) from pg_inherits
              where inhparent = 'telemetry_readings'::regclass)::bigint,
              (select count(*) from telemetry_readings)
            """
        ).fetchone()
    assert row is not None  # noqa: S101
    return row[0], row[1]


def _files(url: str) -> tuple[int, int]:
    with psycopg.connect(url) as owner:
        row = owner.execute(
            "select sum(size_bytes)::bigint, sum(row_count)::bigint from telemetry_archives"
        ).fetchone()
    assert row is not None  # noqa: S101
    return row[0], row[1]
