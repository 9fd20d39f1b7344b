"""P16: pages of a company with 200 devices and 90 days of rollups, beside a static file.

page      one request after the other, each computed anew: Today, Telemetry, and the 90 days of one
          sensor
static    bytes as many as that page has compressed, from the same server
viewers   50 live pages at once: each fetches its page, waits as console.js does (half a second, or
          four times as long as the answer took), and fetches again; readings arrive all the time
browser   one whole page at a time in Chromium, as a phone, with nothing cached, while readings
          arrive: its first view, its longest task

The console runs as a process of its own. Rows are made by SQL: minutes of the last six hours, hours
and days of 90 days, and of each sensor the readings of the last half an hour.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx2
import psycopg
from fastapi import Response

from bench import ingest, long_tasks, machine, results
from bench.ingest import Running
from bench.long_tasks import Busy
from bench.results import Result
from farmiq import config, services
from farmiq.cloud.console import service, shared_parts
from farmiq.cloud.identity import accounts
from farmiq.cloud.identity.sign_in import Opened, SignIns
from farmiq.cloud.identity.store import Client
from farmiq.config import CloudSettings
from farmiq.lab import stack
from farmiq.lab.stack import processes
from farmiq.plumbing import db, http, migrations

TENANT, EMAIL, PASSWORD = "bench", "anna@example.com", "correct horse battery"
FILE = "/bench/file/"
PAGES = {
    "Today": "/today",
    "Telemetry": "/readings",
    "a sensor's 90 days": "/telemetry/d-1/temperature/now?range=90d",
}
# The same and others as whole pages.
WHOLE = {
    "Today": "/",
    "Telemetry": "/telemetry",
    "a sensor's 90 days": "/telemetry/d-1/temperature?range=90d",
    "Weighings": "/weighings",
    "Batches": "/batches",
    "Devices": "/devices",
}
# As console.js waits between two answers.
PAUSE_S, PAUSE_SHARE = 0.5, 4
# Readings arrive so often that no answer is shared for long.
CHANGE_S = 0.2
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int = 3
    devices: int = 200
    days: int = 90
    viewers: int = 50
    seconds: float = 15.0
    requests: int = 10


async def measure(plan: Plan, say: Say) -> list[Result]:
    """P16; saved to bench/results.json and docs/develop/bench.md."""
    here = machine.description()
    root = config.state_dir() / "stacks" / "bench-pages"
    stack.remove(root)  # what an interrupted run has left
    with stack.start(root, engines=("postgres-cloud",), say=say) as engines:
        # The console has no bus, but the settings of the cloud ask for one.
        environment = {"FARMIQ_AMQP_URL": "amqp://unused", **engines.environment}
        _fill(environment["FARMIQ_CLOUD_DB_ADMIN_URL"], plan)
        token = await _sign_in(environment["FARMIQ_CLOUD_DB_URL"])
        port = ingest.free_port()
        launch = processes.Launch(
            argv=(sys.executable, "-m", "bench.pages", str(port)),
            environment=config.environment(over=environment),
            folder=Path.cwd(),
            log=root / "logs" / "pages.log",
        )
        process = await asyncio.to_thread(processes.spawn, launch, detach=False)
        try:
            url = f"http://127.0.0.1:{port}"
            await ingest.until_ready(Running(process, launch.log), url)
            found = await _measure(url, environment["FARMIQ_CLOUD_DB_URL"], token, plan, say)
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, 20)
    stack.remove(root)
    results.save(found, machine=here)
    return found


async def _measure(url: str, db_url: str, token: str, plan: Plan, say: Say) -> list[Result]:
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"}
    limits = httpx2.Limits(max_connections=plan.viewers + 1)
    ratios: list[float] = []
    p95s: list[float] = []
    detail: dict[str, object] = {"devices": plan.devices, "days": plan.days}
    async with httpx2.AsyncClient(
        base_url=url, headers=headers, timeout=60, limits=limits
    ) as client:
        for _ in range(plan.rounds):
            alone_ms, file_ms, sizes = await _alone(client, plan.requests)
            shown_ms = await _viewed(client, db_url, plan)
            all_ms = [ms for some in shown_ms.values() for ms in some]
            ratios.append(sum(alone_ms.values()) / sum(file_ms.values()))
            p95s.append(_p95(all_ms) / 1000)
            detail = {
                **detail,
                "kB compressed": {name: round(size / 1000, 1) for name, size in sizes.items()},
                "ms alone": {name: round(ms, 1) for name, ms in alone_ms.items()},
                "ms of a file": {name: round(ms, 1) for name, ms in file_ms.items()},
                "viewers": plan.viewers,
                "ms, p95 of the viewers": {n: round(_p95(ms)) for n, ms in shown_ms.items()},
                "ms, median of the viewers": {
                    n: round(statistics.median(ms)) for n, ms in shown_ms.items()
                },
                "pages a second": round(len(all_ms) / plan.seconds, 1),
            }
            say(f"{ratios[-1]:.1f} files a page; p95 of {plan.viewers} viewers {p95s[-1]:.2f} s")
            say(f"  {detail['ms alone']} {detail['ms, p95 of the viewers']}")
    in_browser = [await _in_browser(url, db_url, token, plan) for _ in range(plan.rounds)]
    longest = [max(page.longest_ms for page in round_.values()) for round_ in in_browser]
    first = [max(page.first_view_ms for page in round_.values()) / 1000 for round_ in in_browser]
    say(f"longest task {longest} ms, slowest first view {first} s")
    return [
        results.of_runs(
            "P16", f"s, p95 of a page with 200 devices and 90 days at {plan.viewers} viewers",
            p95s, target="< 1", detail=detail,
        ),
        results.of_runs(
            "P16 page/file", "time of a page / of a static file of the same size", ratios,
            target="< 100", detail=detail,
        ),
        results.of_runs(
            "P16 first view", "s to the first content of the slowest page, nothing cached", first,
            target="< 1",
            detail={
                "ms by page": {n: round(page.first_view_ms) for n, page in in_browser[-1].items()},
                "kB of HTML": {
                    n: round(page.page_bytes / 1000, 1) for n, page in in_browser[-1].items()
                },
            },
        ),
        results.of_runs(
            "P16 task", "ms, longest task of a page that is open while readings arrive", longest,
            target="< 200",
            detail={
                "ms by page": {n: round(page.longest_ms) for n, page in in_browser[-1].items()},
                "layout shift": {n: round(page.shift, 4) for n, page in in_browser[-1].items()},
                "note": "0: no task took 50 ms",
            },
        ),
    ]  # fmt: skip


async def _in_browser(url: str, db_url: str, token: str, plan: Plan) -> dict[str, Busy]:
    ends_at = time.monotonic() + len(WHOLE) * (plan.seconds + 30)
    change = asyncio.create_task(_change(db_url, ends_at))
    try:
        return await long_tasks.busy(url, token, WHOLE, seconds=plan.seconds / len(WHOLE))
    finally:
        change.cancel()
        await asyncio.gather(change, return_exceptions=True)


async def _alone(
    client: httpx2.AsyncClient, requests: int
) -> tuple[dict[str, float], dict[str, float], dict[str, int]]:
    """Milliseconds of each page, of a file of its size, and that size in bytes."""
    pages: dict[str, float] = {}
    files: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for name, address in PAGES.items():
        sizes[name] = await _size(client, address)
        pages[name] = statistics.median([await _anew_ms(client, address) for _ in range(requests)])
        file = f"{FILE}{sizes[name]}"
        files[name] = statistics.median([await _ms(client, file) for _ in range(requests)])
    return pages, files, sizes


async def _size(client: httpx2.AsyncClient, address: str) -> int:
    async with client.stream("GET", address) as answer:
        answer.raise_for_status()
        return sum([len(part) async for part in answer.aiter_raw()])


async def _ms(client: httpx2.AsyncClient, address: str) -> float:
    began = time.perf_counter()
    (await client.get(address)).raise_for_status()
    return (time.perf_counter() - began) * 1000


async def _anew_ms(client: httpx2.AsyncClient, address: str) -> float:
    """Of a page that is computed for this request."""
    await asyncio.sleep(shared_parts.MAX_AGE_S)
    return await _ms(client, address)


async def _viewed(client: httpx2.AsyncClient, url: str, plan: Plan) -> dict[str, list[float]]:
    """Milliseconds of every answer to the viewers, by page."""
    shown: dict[str, list[float]] = {name: [] for name in PAGES}
    ends_at = time.monotonic() + plan.seconds

    async def view(number: int) -> None:
        name = list(PAGES)[number % len(PAGES)]
        await asyncio.sleep(number / plan.viewers)
        while time.monotonic() < ends_at:
            took_ms = await _ms(client, PAGES[name])
            shown[name].append(took_ms)
            await asyncio.sleep(max(PAUSE_S, PAUSE_SHARE * took_ms / 1000))

    async with asyncio.TaskGroup() as group:
        group.create_task(_change(url, ends_at))
        for number in range(plan.viewers):
            group.create_task(view(number))
    return shown


async def _change(url: str, ends_at: float) -> None:
    """Readings arrive: without a change, viewers of a company share one answer."""
    async with db.pool(url, name="bench-changes") as pool:
        while time.monotonic() < ends_at:
            async with db.transaction(pool) as tx:
                await tx.execute(
                    "update telemetry_latest set metric_value = metric_value + 0.01, "
                    "occurred_at = now(), stored_at = now() where device_id = 'd-1'"
                )
                await tx.execute(
                    "select pg_notify('telemetry_changed', company_id::text) from companies"
                )
            await asyncio.sleep(CHANGE_S)


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


async def _sign_in(url: str) -> str:
    async with db.pool(url, name="bench") as pool:
        opened = await SignIns(pool, lasts=timedelta(hours=8)).sign_in(
            EMAIL, PASSWORD, client=Client("127.0.0.1", "bench"), browser=None
        )
    assert isinstance(opened, Opened)  # noqa: S101 - without a second factor
    return opened.token


def _fill(url: str, plan: Plan) -> None:
    migrations.apply(url, services.SQL["cloud"])
    with psycopg.connect(url) as connection:
        company_id = accounts.add_company(connection, TENANT, name="Bench", timezone="UTC")
        accounts.add_user(connection, EMAIL, company_id=company_id, password=PASSWORD)
    values = {"tenant": TENANT, "devices": plan.devices, "days": plan.days}
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in _MADE:
            connection.execute(statement.encode(), values)
        connection.execute("vacuum analyze")


_SERIES = """
  generate_series(1, %(devices)s) d
  cross join (values ('temperature', '°C'), ('humidity', '%%')) m(metric, unit)
"""
_BUCKET = """
  insert into telemetry_agg (id, tenant_id, farm_id, barn_id, device_id, "window",
    bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value, sum_value,
    count)
  select gen_random_uuid(), %(tenant)s, 'f-1', 'b-' || mod(d, 10), 'd-' || d, w.name, t,
    t + w.length, m.metric, m.unit, 20 + 5 * sin(d), 18, 27, 120, 6
"""
_MADE = (
    """
    insert into farms (tenant_id, farm_id, name, timezone)
    values (%(tenant)s, 'f-1', 'Farm', 'UTC')
    """,
    """
    insert into barns (tenant_id, farm_id, barn_id, name)
    select %(tenant)s, 'f-1', 'b-' || b, 'Barn ' || b from generate_series(0, 9) b
    """,
    """
    insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count, placed_on)
    select %(tenant)s, 'batch-' || b, 'f-1', 'b-' || b, 'broiler', 20000, current_date - 30
    from generate_series(0, 9) b
    """,
    """
    insert into kpi_daily (tenant_id, farm_id, barn_id, batch_id, kpi_date, kpi_type, value, unit,
      source_event_count)
    select %(tenant)s, 'f-1', 'b-' || b, 'batch-' || b, current_date - n, k, 1 + n / 10.0, 'kg', 1
    from generate_series(0, 9) b cross join generate_series(0, 30) n
      cross join unnest(array['head_count', 'weight_mean', 'adg', 'fcr', 'intake_kg']) k
    """,
    f"""
    insert into telemetry_readings (tenant_id, event_id, farm_id, barn_id, device_id, metric_type,
      metric_value, unit, occurred_at, trace_id)
    select %(tenant)s, gen_random_uuid(), 'f-1', 'b-' || mod(d, 10), 'd-' || d, m.metric,
      20 + 5 * sin(d + n / 9.0), m.unit, now() - n * interval '10 seconds', 'trace'
    from {_SERIES} cross join generate_series(0, 180) n
    """,  # noqa: S608 - our own text
    """
    insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, barn_id, event_id,
      metric_value, unit, occurred_at, stored_at, reading_count)
    select distinct on (device_id, metric_type) tenant_id, device_id, metric_type, farm_id, barn_id,
      event_id, metric_value, unit, occurred_at, stored_at, 180
    from telemetry_readings order by device_id, metric_type, occurred_at desc
    """,
    f"""
    {_BUCKET} from {_SERIES}
      cross join (values ('1m', interval '1 minute')) w(name, length)
      cross join generate_series(date_trunc('minute', now()) - interval '6 hours', now(),
        interval '1 minute') t
    """,
    f"""
    {_BUCKET} from {_SERIES}
      cross join (values ('1h', interval '1 hour')) w(name, length)
      cross join generate_series(date_trunc('hour', now()) - %(days)s * interval '1 day', now(),
        interval '1 hour') t
    """,
    f"""
    {_BUCKET} from {_SERIES}
      cross join (values ('1d', interval '1 day')) w(name, length)
      cross join generate_series(date_trunc('day', now()) - %(days)s * interval '1 day', now(),
        interval '1 day') t
    """,
)


async def serve(port: int) -> None:
    """The console, and beside it bytes of any number."""
    server = http.HttpServer("farmiq-cloud", "bench")

    async def file(size: int) -> Response:
        return Response(bytes(size), media_type="application/octet-stream")

    server.app.add_api_route(FILE + "{size}", file)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run(CloudSettings.load(config.environment()), server))
        group.create_task(http.serve(server, host="127.0.0.1", port=port))


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
