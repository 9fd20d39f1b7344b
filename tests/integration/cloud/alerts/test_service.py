"""cloud-alerts-service on a real bus: values in, steps out; killed anywhere."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from farmiq import crash, services
from farmiq.cloud import bus
from farmiq.cloud.alerts.evaluating.past import READING
from farmiq.messages import bus as envelopes
from farmiq.messages.bus import BusEvent
from farmiq.messages.catalogue import BUS
from farmiq.plumbing import http, ids
from farmiq.plumbing.bus import amqp
from tests.integration.cloud.alerts.conftest import MINUTE, Alerts, now
from tests.integration.plumbing.test_amqp import waiting
from tests.support import preloaded
from tests.support.until import until

NAME = "cloud-alerts-service"
POINTS = [
    "alerts.before_readings_commit", "alerts.after_readings_commit",
    "alerts.before_recheck_commit", "alerts.before_page_commit", "alerts.after_page_commit",
]  # fmt: skip
HOT, BROKER = "rule:hot|f/1/d", "edge:edge-01|broker.store|broker"


@pytest.fixture
async def publisher(alerts: Alerts) -> AsyncIterator[amqp.Publisher]:
    url = alerts.site.settings.amqp_url.get_secret_value()
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


async def _none_waiting(url: str, queue: str) -> bool:
    return await waiting(url, queue) == 0


async def test_values_and_alerts_of_the_bus_become_steps_within_seconds(
    alerts: Alerts, publisher: amqp.Publisher, tasks: asyncio.TaskGroup
) -> None:
    server = http.HttpServer(title="test", version="0")
    for service in services.SERVICES:
        if service.name in (NAME, "cloud-telemetry-service"):
            run = service.load()
            tasks.create_task(run(alerts.site.settings, server))  # type: ignore[arg-type]
    url = alerts.site.settings.amqp_url.get_secret_value()
    # The service has loaded rules before these are set: it hears of the change.
    await publish(publisher, alerts.reading(now() - MINUTE, 20.0))
    await until(lambda: alerts.owner("select 1 from telemetry_readings"))
    await until(lambda: not alerts.owner("select 1 from alert_readings"))
    await alerts.rule()
    hot = alerts.reading(now(), 40.0)
    old = alerts.reading(now() - 30 * MINUTE, 40.0)
    alert = alerts.edge_alert("opened", ids.new(), now())
    await publish(publisher, hot, alert, hot)
    await until(lambda: {*alerts.steps()} == {(HOT, "opened"), (BROKER, "opened")}, within_s=30)
    await publish(publisher, old, alerts.reading(now() + MINUTE / 30, 20.0))
    await until(lambda: (HOT, "resolved") in alerts.steps(), within_s=30)
    await until(lambda: not alerts.owner("select 1 from alert_rechecks"), within_s=30)
    # The value that was late is history.
    assert [row[1] for row in alerts.episodes("hot")] == ["resolved", "resolved"]
    for work in (bus.ALERTS, bus.EDGE):
        await until(partial(_none_waiting, url, work.queue))
        assert await waiting(url, work.dead_letters) == 0


async def test_what_a_clock_that_was_ahead_has_put_off_is_due_when_it_is_back(
    alerts: Alerts, tasks: asyncio.TaskGroup
) -> None:
    alerts.owner(
        "insert into alert_readings (tenant_id, farms, barns, devices, metrics, units, moments, "
        "numbers, due_at) values ('t-001', '{f}', '{1}', '{d}', '{temperature}', '{C}', "
        "array[now()], '{20}', now() + interval '3 days')"
    )
    alerts.owner(
        "insert into alert_rechecks (tenant_id, signal, subject, event_id, occurred_at, due_at) "
        "values ('t-001', 'telemetry.temperature', 'f/1/d', %s, now(), now() + interval '3 days')",
        READING,
    )
    (service,) = (service for service in services.SERVICES if service.name == NAME)
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(service.load()(alerts.site.settings, server))  # type: ignore[arg-type]
    waiting_rows = "select 1 from alert_readings union all select 1 from alert_rechecks"
    await until(lambda: not alerts.owner(waiting_rows), within_s=30)


async def test_readings_that_an_earlier_version_left_in_the_queue_are_taken(
    alerts: Alerts, publisher: amqp.Publisher, tasks: asyncio.TaskGroup
) -> None:
    url = alerts.site.settings.amqp_url.get_secret_value()
    await alerts.rule()
    await publish(publisher, alerts.reading(now() - MINUTE, 20.0))
    async with amqp.connection(url, name="test") as opened:
        queue = await (await opened.channel()).get_queue(bus.ALERTS.queue, ensure=False)
        await queue.bind("farmiq.telemetry.exchange", "telemetry.ingested")
    await publish(publisher, alerts.reading(now(), 40.0))
    assert await waiting(url, bus.ALERTS.queue) == 1
    server = http.HttpServer(title="test", version="0")
    (service,) = (service for service in services.SERVICES if service.name == NAME)
    tasks.create_task(service.load()(alerts.site.settings, server))  # type: ignore[arg-type]
    await until(lambda: alerts.steps() == [(HOT, "opened")], within_s=30)
    assert await waiting(url, bus.ALERTS.dead_letters) == 0


@pytest.fixture
def started(
    alerts: Alerts, free_port: Callable[[], int], tmp_path: Path
) -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    running: list[subprocess.Popen[Any]] = []

    def start(crash_at: str | None = None) -> subprocess.Popen[Any]:
        site = alerts.site
        environment = {
            **os.environ,
            "FARMIQ_EDGE_KEYS_FILE": str(site.settings.edge_keys_file),
            "FARMIQ_CLOUD_DB_URL": site.database.url,
            "FARMIQ_AMQP_URL": site.settings.amqp_url.get_secret_value(),
            "FARMIQ_CLOUD_HTTP_PORT": str(free_port()),
            **({"FARMIQ_CRASH_AT": crash_at} if crash_at else {}),
        }
        log = tmp_path / f"{len(running)}.log"
        running.append(preloaded.run(NAME, environment, log=log))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.parametrize("point", [*POINTS, "sink.before_commit", "sink.after_commit"])
async def test_death_at_a_crash_point_loses_no_step_and_doubles_none(
    alerts: Alerts,
    publisher: amqp.Publisher,
    started: Callable[..., subprocess.Popen[Any]],
    point: str,
) -> None:
    assert [name for name in crash.POINTS if name.startswith("alerts.")] == POINTS
    await alerts.rule(for_s=60)
    at = now() - 60 * MINUTE
    devices = ("d", "e", "g")
    events = [
        alerts.reading(at + minute * MINUTE, value, device_id=device)
        for device in devices
        for minute, value in ((0, 40.0), (1, 40.0), (2, 20.0), (60, 40.0))
    ]
    # With what is late the newest value has been as bad for a minute.
    late = [alerts.reading(at + 59 * MINUTE, 40.0, device_id=device) for device in devices]
    await alerts.store(*events)
    process = started(point)
    await publish(publisher, alerts.edge_alert("opened", ids.new(), now()))
    if "recheck" in point:
        newest = "select 1 from alert_states where last_at = %s"
        await until(lambda: len(alerts.owner(newest, at + 60 * MINUTE)) == len(devices))
    await alerts.store(*late)
    await until(lambda: process.poll() is not None, within_s=60)
    assert process.returncode == -signal.SIGKILL
    started()
    wanted = sorted([BROKER, *(f"rule:hot|f/1/{device}" for device in devices)])

    def done() -> bool:
        late = alerts.owner("select 1 from alert_rechecks union all select 1 from alert_readings")
        return not late and sorted(alerts.steps()) == [(cause, "opened") for cause in wanted]

    await until(done, within_s=60)
    spans = alerts.owner(
        "select device_id, state, extract(epoch from opened_at - %s)::int / 60 from alert_episodes "
        "where state <> 'withdrawn' and source = 'rule' order by device_id, opened_at",
        at,
    )
    assert spans == [row for d in devices for row in ((d, "resolved", 1), (d, "active", 60))]
