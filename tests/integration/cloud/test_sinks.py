"""Every family of events lands: once, under its tenant, and poison harms only itself."""

import asyncio
import importlib
import json
import random
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from farmiq import services
from farmiq.cloud import bus, sink
from farmiq.cloud.bus import UNROUTED_QUEUE
from farmiq.cloud.feed import service as feed
from farmiq.cloud.identity.accounts import add_company
from farmiq.cloud.sink import Sink
from farmiq.config import CloudSettings
from farmiq.messages.catalogue import BUS
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.bus import delivery as deliveries
from tests.integration.cloud.conftest import CloudSite
from tests.integration.cloud.test_ingestion import ready
from tests.integration.plumbing.test_amqp import read_one, waiting
from tests.support import databases, preloaded
from tests.support.until import until
from tests.unit.messages import samples

SINKS: dict[str, tuple[str, Sink]] = {}
for _service in services.SERVICES:
    _module = importlib.import_module(_service.module)
    # A method of a sink is the whole service; else the module has sinks of its own.
    _sink = getattr(_service.load(), "__self__", None)
    for _found in [_sink] if _sink else vars(_module).values():
        if isinstance(_found, Sink) and _found.work in bus.SINKS:
            SINKS[_found.work.queue] = (_service.name, _found)

TABLES = {
    bus.TELEMETRY.queue: "telemetry_readings",
    bus.AGGREGATES.queue: "telemetry_agg",
    bus.WEIGHVISION.queue: "weighvision_events",
    bus.MEDIA.queue: "media_events",
    bus.INFERENCE.queue: "inference_events",
    bus.FEED.queue: "feed_events",
    bus.BARN.queue: "barn_events",
    bus.DEVICE.queue: "device_events",
    bus.SYNC.queue: "sync_events",
    bus.KPI.queue: "kpi_events",
}
QUICK = (0.01, 0.02, 0.03, 0.04)


def sample(event_type: str, /, **changes: Any) -> dict[str, Any]:
    whole = {**samples.on_the_bus(event_type), "event_id": str(ids.new()), "tenant_id": "t-001"}
    return {**whole, **changes}


def written(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode()


def outgoing(event_type: str, body: bytes) -> amqp.Outgoing:
    return amqp.Outgoing(BUS[event_type].exchange, event_type, body, str(ids.new()))


def kept(cloud: CloudSite, table: str) -> list[str]:
    # Of an edge's bucket the event is the id; the cloud computes others from it.
    key = (
        "id from telemetry_agg where sent" if table == "telemetry_agg" else f"event_id from {table}"
    )
    return [str(row[0]) for row in cloud.rows(f"select {key}")]


@pytest.fixture
def quick(cloud: CloudSite) -> CloudSettings:
    """The cloud's settings with retries that do not keep a test waiting."""
    return cloud.settings.model_copy(update={"bus_retry_s": QUICK})


@pytest.fixture
async def pool(cloud: CloudSite) -> AsyncIterator[db.Pool]:
    async with db.pool(cloud.database.url, name="test") as opened:
        yield opened


@pytest.fixture
async def publisher(cloud: CloudSite) -> AsyncIterator[amqp.Publisher]:
    url = cloud.settings.amqp_url.get_secret_value()
    async with amqp.publisher(url, name="test", topology=bus.TOPOLOGY) as opened:
        yield opened


# Alerts of edges become episodes (cloud-alerts-service) and are in no table as events.
STORED = sorted(kind for kind in BUS if not kind.startswith("edge."))


def test_every_registered_type_is_wanted_by_exactly_one_queue_and_every_queue_has_a_service() -> (
    None
):
    wanted = [kind for work in bus.SINKS for kind in work.event_types]
    assert sorted(wanted) == STORED
    assert set(SINKS) == set(TABLES) == {work.queue for work in bus.SINKS}
    for service_name, found in SINKS.values():
        assert service_name == found.work.service


async def test_an_event_of_every_type_lands_in_its_table_and_nothing_is_left_over(
    cloud: CloudSite, quick: CloudSettings, publisher: amqp.Publisher, tasks: asyncio.TaskGroup
) -> None:
    url = cloud.settings.amqp_url.get_secret_value()
    server = http.HttpServer(title="test", version="0")
    sent = {kind: sample(kind) for kind in STORED}
    await publisher.publish(
        [outgoing(kind, written(event)) for kind, event in sent.items()], timeout_s=60
    )
    consumers = {work.service for work in bus.WORKS}
    for service in services.SERVICES:
        if service.name in consumers:
            tasks.create_task(service.load()(quick, server))  # type: ignore[arg-type]

    def stored() -> set[str]:
        return {event_id for table in TABLES.values() for event_id in kept(cloud, table)}

    await until(lambda: stored() == {event["event_id"] for event in sent.values()}, within_s=90)
    assert await waiting(url, UNROUTED_QUEUE) == 0
    for work in bus.WORKS:
        await until(partial(_none_waiting, url, work.queue))
        assert await waiting(url, work.dead_letters) == 0
    _look_at_columns(cloud, sent)
    await until(lambda: ready(server))


def _look_at_columns(cloud: CloudSite, sent: dict[str, dict[str, Any]]) -> None:
    assert cloud.rows("select weight_kg from weighvision_events where weight_kg is not null") == [
        (120.5,)
    ]
    assert cloud.rows("select object_key, size_bytes from media_events") == [
        ("tenants/t-001/frame-001.jpg", 204800)
    ]
    assert cloud.rows("select predicted_weight_kg, confidence from inference_events") == [
        (121.3, 0.94)
    ]
    assert cloud.rows("select event_type, quantity_kg from feed_events order by 1") == [
        ("feed.intake.recorded", 25.5), ("feed.lot.received", 5000.0),
    ]  # fmt: skip
    assert cloud.rows("select record_type, value_number, value_text from barn_events") == [
        ("treatment", 2.0, None)
    ]
    devices = cloud.rows("select state, dropped_class, dropped_count from device_events order by 1")
    assert devices == [("online", None, None), (None, "telemetry", 12)]
    batches = cloud.rows("select status, event_count, edge_cluster_id from sync_events order by 1")
    assert batches == [("acked", 500, None), (None, 500, "edge-01")]
    assert cloud.rows("select kpi_date::text, kpi_type, value from kpi_events") == [
        ("2025-01-02", "fcr", 1.62)
    ]
    assert cloud.rows('select avg_value, "window" from telemetry_agg where sent') == [(25.8, "1h")]
    assert cloud.rows("select payload from feed_events where event_type like '%lot%'") == [
        (sent["feed.lot.received"]["payload"],)
    ]


async def _none_waiting(url: str, queue: str) -> bool:
    return await waiting(url, queue) == 0


@pytest.mark.req("RB-12", "RB-28")
@pytest.mark.parametrize("queue", TABLES)
async def test_each_event_three_times_in_any_order_is_one_row(
    cloud: CloudSite, pool: db.Pool, queue: str
) -> None:
    found = SINKS[queue][1]
    # Devices differ: of one device, several events may say the same of one bucket.
    events = [
        sample(kind, **({"device_id": f"d-{n}"} if queue == bus.AGGREGATES.queue else {}))
        for kind in found.work.event_types
        for n in range(5)
    ]
    bodies = [written(event) for event in events] * 3
    random.Random(7).shuffle(bodies)
    for start in range(0, len(bodies), 7):
        assert await sink.store_events(pool, bodies[start : start + 7], found) == {}
    assert sorted(kept(cloud, TABLES[queue])) == sorted(event["event_id"] for event in events)


async def test_the_same_id_of_two_tenants_is_two_events(cloud: CloudSite, pool: db.Pool) -> None:
    event = sample("feed.lot.received")
    bodies = [written(event), written({**event, "tenant_id": "t-002"})]
    assert await sink.store_events(pool, bodies, feed.EVENTS) == {}
    assert cloud.rows("select tenant_id from feed_events order by 1") == [("t-001",), ("t-002",)]


POISON: dict[str, Callable[[str], bytes]] = {
    "no JSON": lambda _: b"{ this is not JSON",
    "nothing": lambda _: b"",
    "all bytes": lambda _: bytes(range(256)),
    "foreign type": lambda kind: written(sample(kind, event_type="no.such.type")),
    "type of another family": lambda kind: written(
        sample("kpi.daily.updated" if kind != "kpi.daily.updated" else "feed.lot.received")
    ),
    "NUL": lambda kind: written(sample(kind, trace_id="a\0b")),
    "huge": lambda kind: written(sample(kind, trace_id="x" * 3_000_000)),
    "deep": lambda kind: written(sample(kind, payload=None)).replace(
        b'"payload": null', b'"payload": ' + b"[" * 5000 + b"]" * 5000
    ),
    "no payload": lambda kind: written(sample(kind, payload={})),
    "unknown tenant": lambda kind: written(sample(kind, tenant_id="t-unknown")),
}


@pytest.mark.req("RB-25", "RB-27")
@pytest.mark.parametrize("queue", [bus.TELEMETRY.queue, bus.WEIGHVISION.queue, bus.SYNC.queue])
async def test_poison_of_every_kind_is_dead_byte_for_byte_and_healthy_events_go_on(
    cloud: CloudSite,
    quick: CloudSettings,
    publisher: amqp.Publisher,
    tasks: asyncio.TaskGroup,
    queue: str,
) -> None:
    found = SINKS[queue][1]
    url, kind = cloud.settings.amqp_url.get_secret_value(), found.work.event_types[0]
    poison = {name: make(kind) for name, make in POISON.items()}
    healthy = [written(sample(kind)) for _ in range(20)]
    bodies = [*poison.values(), *healthy]
    random.Random(7).shuffle(bodies)
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(sink.run(quick, server, found))
    await publisher.publish([outgoing(kind, body) for body in bodies], timeout_s=60)

    await until(lambda: len(kept(cloud, TABLES[queue])) == 20)
    letters = [await read_one(url, found.work.dead_letters) for _ in poison]
    assert sorted(letter.body for letter in letters) == sorted(poison.values())
    attempts = {letter.body: letter.headers[deliveries.ATTEMPTS] for letter in letters}
    for name, body in poison.items():
        assert attempts[body] == (len(QUICK) + 1 if name == "unknown tenant" else 1), name
    assert all(letter.headers[deliveries.QUEUE] == queue for letter in letters)
    assert all(letter.headers[deliveries.REASON] for letter in letters)
    assert await waiting(url, found.work.dead_letters) == 0
    await until(partial(_none_waiting, url, queue))


async def test_a_company_that_is_added_in_time_gets_its_event(
    cloud: CloudSite, quick: CloudSettings, publisher: amqp.Publisher, tasks: asyncio.TaskGroup
) -> None:
    patient = quick.model_copy(update={"bus_retry_s": (0.01, 2.0, 5.0, 20.0)})
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(sink.run(patient, server, feed.EVENTS))
    body = written(sample("feed.lot.received", tenant_id="t-new"))
    await publisher.publish([outgoing("feed.lot.received", body)], timeout_s=60)
    url = cloud.settings.amqp_url.get_secret_value()
    pauses = [bus.FEED.retry(seconds) for seconds in (2.0, 5.0, 20.0)]
    await until(lambda: _any_waiting(url, pauses))
    with databases.connected(cloud.database.admin_url) as connection:
        add_company(connection, "t-new", name="New")
    await until(lambda: cloud.rows("select tenant_id from feed_events") == [("t-new",)])
    assert await waiting(url, bus.FEED.dead_letters) == 0


async def _any_waiting(url: str, queues: list[str]) -> bool:
    return any((await amqp.depths(url, queues)).values())


class Process:
    """`farmiq run cloud-feed-service` on the test's own engines."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self._environment, self._folder = environment, folder
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *, crash_at: str = "") -> "subprocess.Popen[bytes]":
        environment = {**self._environment, "FARMIQ_CRASH_AT": crash_at}
        process = preloaded.run(
            feed.EVENTS.work.service, environment, log=self._folder / "feed.log"
        )
        self.running.append(process)
        return process

    def stop(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def process(cloud: CloudSite, tmp_path: Path) -> Iterator[Process]:
    settings = cloud.settings
    made = Process(
        {
            "FARMIQ_CLOUD_DB_URL": settings.db_url.get_secret_value(),
            "FARMIQ_AMQP_URL": settings.amqp_url.get_secret_value(),
            "FARMIQ_EDGE_KEYS_FILE": str(settings.edge_keys_file),
            "FARMIQ_CLOUD_HTTP_PORT": str(settings.http_port),
            "BUS_RETRY_SECONDS": "0.05,0.1,0.2,0.4",
        },
        tmp_path,
    )
    yield made
    made.stop()


def _lots(count: int) -> list[bytes]:
    return [written(sample("feed.lot.received")) for _ in range(count)]


def _stored(cloud: CloudSite) -> int:
    found: int = cloud.rows("select count(*) from feed_events")[0][0]
    return found


async def test_death_after_setting_aside_loses_nothing(
    cloud: CloudSite, publisher: amqp.Publisher, process: Process
) -> None:
    """The poison may lie among the dead twice, being delivered again; healthy events never."""
    url = cloud.settings.amqp_url.get_secret_value()
    healthy, poison = _lots(30), b"not an event"
    for body in (*healthy[:15], poison, *healthy[15:]):
        await publisher.publish([outgoing("feed.lot.received", body)], timeout_s=60)
    died = process.start(crash_at="consume.after_set_aside")
    await until(lambda: died.poll() is not None, within_s=90)
    assert died.returncode == -signal.SIGKILL
    process.start()
    await until(lambda: _stored(cloud) == 30, within_s=90)
    await until(partial(_none_waiting, url, bus.FEED.queue))
    copies = await waiting(url, bus.FEED.dead_letters)
    assert copies in (1, 2)
    assert {(await read_one(url, bus.FEED.dead_letters)).body for _ in range(copies)} == {poison}


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_consumer_killed_or_paused_in_its_work_is_taken_over(
    cloud: CloudSite, publisher: amqp.Publisher, process: Process, sign: signal.Signals
) -> None:
    """A second one goes on; a paused one comes back and changes nothing."""
    url = cloud.settings.amqp_url.get_secret_value()
    first = process.start()
    bodies = _lots(600)
    for start in range(0, 600, 50):
        part = [outgoing("feed.lot.received", body) for body in bodies[start : start + 50]]
        await publisher.publish(part, timeout_s=60)
        if start == 300:
            await until(lambda: _stored(cloud) > 0, within_s=90)
            first.send_signal(sign)
    if sign == signal.SIGKILL:
        first.wait()
        process.start()
    else:
        first.send_signal(signal.SIGCONT)
    await until(lambda: _stored(cloud) == 600, within_s=90)
    await until(partial(_none_waiting, url, bus.FEED.queue))
    assert await waiting(url, bus.FEED.dead_letters) == 0
    sent = sorted(json.loads(body)["event_id"] for body in bodies)
    assert sorted(kept(cloud, "feed_events")) == sent


@pytest.mark.req("RB-06")
def test_names_follow_the_rules_of_document_001() -> None:
    whole = bus.whole()
    for exchange in whole.exchanges:
        assert re.fullmatch(r"farmiq\.[a-z]+\.exchange", exchange.name)
    for queue in whole.queues:
        assert re.fullmatch(r"farmiq\.cloud-[a-z-]+\.[a-z0-9-]+\.queue", queue.name)
    assert len({queue.name for queue in whole.queues}) == len(whole.queues)
