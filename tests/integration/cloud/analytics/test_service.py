"""cloud-analytics-service on a real bus: events in, figures and events out; killed anywhere."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from farmiq import services
from farmiq.cloud import bus
from farmiq.messages import bus as envelopes
from farmiq.messages.bus import BusEvent
from farmiq.messages.catalogue import BUS
from farmiq.plumbing import http
from farmiq.plumbing.bus import amqp
from tests.integration.cloud.analytics.conftest import Analytics, at, on
from tests.integration.plumbing.test_amqp import waiting
from tests.support import preloaded
from tests.support.until import until

SERVICES = tuple(f"cloud-{name}-service" for name in ("analytics", "feed", "barn", "weighvision"))


@pytest.fixture
async def publisher(analytics: Analytics) -> AsyncIterator[amqp.Publisher]:
    url = analytics.site.settings.amqp_url.get_secret_value()
    async with amqp.publisher(url, name="test", topology=bus.TOPOLOGY) as opened:
        yield opened


async def publish(publisher: amqp.Publisher, *events: BusEvent) -> None:
    await publisher.publish(
        [
            amqp.Outgoing(
                BUS[event.event_type].exchange, event.event_type, envelopes.write(event),
                str(event.event_id),
            )
            for event in events
        ],
        timeout_s=60,
    )  # fmt: skip


def happened(farm: Analytics) -> list[BusEvent]:
    events = []
    for day in range(1, 6):
        events += farm.weighing(at(day, 1), 0.1 + day * 0.05)
        events += [farm.intake(at(day, 2), 90.0), farm.record(at(day, 3), "mortality", day)]
    return events


def as_announced(farm: Analytics) -> dict[tuple[str, str], float | None]:
    """What somebody knows who only listened: the newest event of each figure."""
    rows = farm.owner(
        "select kpi_date::text, kpi_type, value from kpi_events where tenant_id = %s "
        "order by occurred_at, stored_at",
        farm.tenant_id,
    )
    return {(row[0], row[1]): row[2] for row in rows}


def not_doubled(farm: Analytics) -> bool:
    """No figure was announced twice in a row with the same content."""
    rows = farm.owner(
        "select kpi_date, kpi_type, payload::text from kpi_events order by 1, 2, occurred_at"
    )
    return all(one != other for one, other in pairwise(rows))


@pytest.mark.req("RB-04", "RB-28", "FB-13")
async def test_events_of_the_bus_become_figures_and_events(
    analytics: Analytics, publisher: amqp.Publisher, tasks: asyncio.TaskGroup
) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    events = happened(farm)
    settings = farm.site.settings
    server = http.HttpServer(title="test", version="0")
    for service in services.SERVICES:
        if service.name in SERVICES:
            tasks.create_task(service.load()(settings, server))  # type: ignore[arg-type]
    for _ in range(3):
        await publish(publisher, *events)
    wanted = {(on(day), "head_count"): 1000.0 - sum(range(1, day + 1)) for day in range(1, 6)}
    await until(lambda: wanted.items() <= farm.figures().items(), within_s=60)
    url = settings.amqp_url.get_secret_value()
    for work in (bus.DAYS, bus.KPI):
        await until(partial(_none_waiting, url, work.queue))
        assert await waiting(url, work.dead_letters) == 0
    await until(lambda: as_announced(farm) == farm.figures(), within_s=60)
    await until(lambda: not farm.owner("select 1 from analytics_dirty_days"))
    assert not_doubled(farm)
    ((payload,),) = farm.owner(
        "select payload from kpi_events where kpi_type = 'intake_kg' and kpi_date = %s "
        "order by occurred_at desc limit 1",
        on(2),
    )
    assert payload["batch_id"] == "b"
    assert payload["value"] == 90.0


async def test_what_a_clock_that_was_ahead_has_put_off_is_due_when_it_is_back(
    analytics: Analytics, tasks: asyncio.TaskGroup
) -> None:
    analytics.farm()
    analytics.batch()
    analytics.owner("update analytics_dirty_days set due_at = now() + interval '3 days'")
    assert analytics.owner("select 1 from analytics_dirty_days")
    analytics.owner(
        "insert into analytics_pending (tenant_id, event_id, family, next_look_at) "
        "values ('t-001', gen_random_uuid(), 'feed', now() + interval '3 days')"
    )
    (service,) = (s for s in services.SERVICES if s.name == "cloud-analytics-service")
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(service.load()(analytics.site.settings, server))  # type: ignore[arg-type]
    put_off = (
        "select 1 from analytics_dirty_days union all select 1 from analytics_pending "
        "where next_look_at > now() + interval '1 day'"
    )
    await until(lambda: not analytics.owner(put_off), within_s=30)


async def _none_waiting(url: str, queue: str) -> bool:
    return await waiting(url, queue) == 0


@pytest.fixture
def started(
    analytics: Analytics, free_port: Callable[[], int], tmp_path: Path
) -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    running: list[subprocess.Popen[Any]] = []

    def start(name: str, crash_at: str | None = None) -> subprocess.Popen[Any]:
        site = analytics.site
        environment = {
            **os.environ,
            "FARMIQ_EDGE_KEYS_FILE": str(site.settings.edge_keys_file),
            "FARMIQ_CLOUD_DB_URL": site.database.url,
            "FARMIQ_AMQP_URL": site.settings.amqp_url.get_secret_value(),
            "FARMIQ_CLOUD_HTTP_PORT": str(free_port()),
            **({"FARMIQ_CRASH_AT": crash_at} if crash_at else {}),
        }
        log = tmp_path / f"{len(running)}.log"
        running.append(preloaded.run(name, environment, log=log))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "point",
    [
        "analytics.before_pending_commit",
        "analytics.before_publish",
        "analytics.after_publish",
        "analytics.after_commit",
        "analytics.after_publish:2",
    ],
)
async def test_death_at_a_crash_point_loses_and_doubles_nothing(
    analytics: Analytics, started: Callable[..., subprocess.Popen[Any]], point: str
) -> None:
    farm = analytics
    farm.farm(barns=("1", "2", "3"))
    for number, name in enumerate("bcd", start=1):
        farm.batch(name, barn_id=str(number))
    events = happened(farm)
    events += [farm.intake(at(day), 5.0, barn_id=barn) for day in range(3) for barn in "23"]
    await farm.hear(*events)
    await farm.store(*events)
    process = started("cloud-analytics-service", point)
    await until(lambda: process.poll() is not None, within_s=60)
    assert process.returncode == -signal.SIGKILL
    late = farm.intake(at(3), 1.0)
    await farm.send(late)
    started("cloud-analytics-service")
    marks = "select 1 from analytics_dirty_days union select 2 from analytics_pending"
    await until(lambda: not farm.owner(marks), within_s=60)
    stored = farm.rows()
    told = {(row[3], str(row[4]), row[5]): row[6] for row in stored}
    await until(lambda: as_announced_of(farm) == told, within_s=60)
    assert not_doubled(farm)
    # Computed once more from nothing, it is the same.
    farm.owner("delete from kpi_daily")
    farm.owner("delete from batch_days")
    farm.owner("update batches set placed_count = placed_count + 1")
    farm.owner("update batches set placed_count = placed_count - 1")
    await until(lambda: not farm.owner(marks), within_s=60)
    assert farm.rows() == stored


def as_announced_of(farm: Analytics) -> dict[tuple[str, str, str], float | None]:
    rows = farm.owner(
        "select payload ->> 'batch_id', kpi_date::text, kpi_type, value from kpi_events "
        "order by occurred_at, stored_at"
    )
    return {(row[0], row[1], row[2]): row[3] for row in rows}


async def test_two_processes_at_once_compute_everything_once(
    analytics: Analytics, publisher: amqp.Publisher, started: Callable[..., subprocess.Popen[Any]]
) -> None:
    farm = analytics
    farm.farm(barns=tuple("12345"))
    for number in range(1, 6):
        farm.batch(f"b{number}", barn_id=str(number))
    for _ in range(2):
        started("cloud-analytics-service")
    events = [
        farm.intake(at(day, hour), 1.0, barn_id=str(barn))
        for day in range(8) for hour in range(3) for barn in range(1, 6)
    ]  # fmt: skip
    await farm.store(*events)
    await publish(publisher, *events)

    def done() -> bool:
        query = "select count(*) from kpi_daily where kpi_type = 'intake_kg' and value = 3"
        return farm.owner(query) == [(40,)]

    await until(done, within_s=60)
    await until(lambda: not farm.owner("select 1 from analytics_dirty_days"))
    found = {(row[3], str(row[4]), row[5]): row[6] for row in farm.rows()}
    await until(lambda: as_announced_of(farm) == found, within_s=60)
    assert not_doubled(farm)
