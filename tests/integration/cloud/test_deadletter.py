"""Dead letters: counted, shown, redriven once, discarded with an audit, by those who may."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import prometheus_client
import psycopg
import pytest
import structlog

from farmiq.cloud import bus, sink
from farmiq.cloud.deadletter import handlers, service, watch
from farmiq.cloud.deadletter.rules import BusFilter
from farmiq.cloud.feed import service as feed
from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.plumbing import db, http
from farmiq.plumbing.bus import amqp, consume
from farmiq.plumbing.bus.delivery import Properties
from tests.integration.cloud.conftest import CloudSite
from tests.integration.cloud.test_sinks import kept, sample, written
from tests.integration.plumbing.test_amqp import waiting
from tests.support import typed
from tests.support.until import until

PILE = bus.FEED.dead_letters
# What letters of feed travel on: the whole bus costs the broker ten times as much.
OF_FEED = amqp.Topology(
    bus.EXCHANGES,
    (
        *(
            queue
            for queue in bus.TOPOLOGY.queues
            if queue.name in {bus.UNROUTED_QUEUE, bus.DAYS.queue}
        ),
        *bus.part(bus.FEED).queues,
    ),
)
DEPLOY = Path(__file__).parents[3] / "deploy"


def url_of(cloud: CloudSite) -> str:
    return cloud.settings.amqp_url.get_secret_value()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pile is looked through to its end also where the bus is slow."""
    monkeypatch.setattr(consume, "BROWSE_PATIENCE_S", 60.0)


@pytest.fixture
async def bury(cloud: CloudSite) -> Callable[..., Awaitable[None]]:
    """Puts letters where a consumer would have put them."""

    async def put(*bodies: bytes, reason: str = "no good", queue: str = PILE) -> None:
        headers: dict[str, Any] = {
            "retry-attempts": 5,
            "retry-reason": reason,
            "retry-queue": bus.FEED.queue,
            "retry-exchange": "farmiq.feed.exchange",
            "retry-routing-key": "feed.lot.received",
            "retry-failed-at": "2026-01-02T03:04:05.678+00:00",
        }
        async with amqp.connection(url_of(cloud), name="test") as opened:
            await amqp.ensure(opened, OF_FEED)
            outbox = await consume.confirming(opened)
            for start in range(0, len(bodies), 500):
                await asyncio.gather(
                    *(
                        consume.publish(outbox, queue, body, Properties(headers=headers))
                        for body in bodies[start : start + 500]
                    )
                )

    return put


def run(
    cloud: CloudSite,
    *arguments: str,
    crash_at: str = "",
    python: tuple[str, ...] = ("-m", "farmiq"),
    timeout: float = 150,
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *python, "dlq", *arguments],
        env={
            **os.environ,
            "FARMIQ_AMQP_URL": url_of(cloud),
            "FARMIQ_CLOUD_DB_URL": cloud.database.url,
            "FARMIQ_CRASH_AT": crash_at,
        },
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


async def dlq(cloud: CloudSite, *arguments: str, crash_at: str = "") -> Any:
    answer: Any
    if crash_at:
        answer = await asyncio.to_thread(run, cloud, *arguments, crash_at=crash_at)
    else:
        addresses = {
            "FARMIQ_AMQP_URL": url_of(cloud),
            "FARMIQ_CLOUD_DB_URL": cloud.database.url,
        }
        answer = await asyncio.to_thread(typed.farmiq, "dlq", *arguments, **addresses)
    return answer.returncode, answer.stdout, answer.stderr


async def has(url: str, queue: str, count: int) -> bool:
    return await waiting(url, queue) == count


@pytest.mark.req("RB-26")
async def test_letters_are_counted_by_reason_and_shown_and_stay(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]]
) -> None:
    code, said, _ = await dlq(cloud, "ls")
    assert (code, said) == (0, "nothing\n")
    lots = [written(sample("feed.lot.received")) for _ in range(3)]
    await bury(*lots, reason="tenant 'a' is not registered here")
    await bury(written(sample("feed.lot.received")), reason="tenant 'b' is not registered here")
    await bury(b"\xff\x00", reason="not JSON")

    code, said, _ = await dlq(cloud, "ls", "--json")
    assert code == 3
    groups = {each["reason"]: each for each in json.loads(said)}
    assert groups["tenant … is not registered here"]["count"] == 4
    assert groups["tenant … is not registered here"]["event_types"] == ["feed.lot.received"]
    assert groups["not JSON"]["count"] == 1

    await until(partial(has, url_of(cloud), PILE, 5))
    code, said, _ = await dlq(cloud, "show", "--reason", "'b'", "--body", "--json")
    (shown,) = json.loads(said)
    assert (shown["origin"], shown["attempts"]) == (bus.FEED.queue, 5)
    assert json.loads(shown["body"])["event_type"] == "feed.lot.received"
    await until(partial(has, url_of(cloud), PILE, 5))


async def test_a_dry_run_does_nothing_and_a_redrive_delivers_once(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]], tasks: asyncio.TaskGroup
) -> None:
    """The tenant was not known; now it is."""
    events = [sample("feed.lot.received", tenant_id="t-late") for _ in range(120)]
    await bury(*map(written, events), reason="tenant 't-late' is not registered here")
    await bury(b"poison", reason="not JSON")
    with psycopg.connect(cloud.database.admin_url) as connection:
        add_company(connection, "t-late", name="Late")
    url = url_of(cloud)

    code, said, _ = await dlq(cloud, "redrive", "--reason", "t-late", "--dry-run", "--json")
    assert code == 0
    assert json.loads(said.splitlines()[-1]) == {"summary": {"would redrive": 120}}
    await until(partial(has, url, PILE, 121))
    assert await waiting(url, bus.FEED.queue) == 0

    options = ("--reason", "t-late", "--rate", "1000", "--json")
    code, said, problem = await dlq(cloud, "redrive", *options)
    assert code == 0, problem
    outcomes = list(map(json.loads, said.splitlines()))
    assert outcomes[-1] == {"summary": {"redriven": 120}}
    assert {each["event_id"] for each in outcomes[:-1]} == {each["event_id"] for each in events}
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(sink.run(cloud.settings, server, feed.EVENTS))
    await until(lambda: len(kept(cloud, "feed_events")) == 120)
    assert set(kept(cloud, "feed_events")) == {each["event_id"] for each in events}
    await until(partial(has, url, PILE, 1))
    audit = cloud.rows(
        "select tenant_id, action, outcome, count(*), count(body) from dead_letter_actions"
        " group by 1, 2, 3"
    )
    assert audit == [("t-late", "redrive", "redriven", 120, 0)]


@pytest.mark.req("RB-26")
async def test_a_slow_order_does_not_begin_with_a_burst(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]]
) -> None:
    await bury(*(written(sample("feed.lot.received")) for _ in range(10)))
    order = handlers.Order("redrive", BusFilter(), "test", 10, rate_per_s=2.0, dry_run=False)
    async with (
        amqp.connection(url_of(cloud), name="test") as opened,
        db.pool(cloud.database.url, name="test") as pool,
        aclosing(handlers.move(opened, pool, order)) as outcomes,
    ):
        assert (await anext(outcomes)).done == "redriven"
    await until(partial(has, url_of(cloud), PILE, 8))
    assert await waiting(url_of(cloud), bus.FEED.queue) == 2


async def test_a_discarded_letter_is_gone_but_its_bytes_are_in_the_audit(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]]
) -> None:
    odd = bytes(range(256))
    await bury(odd, b"other")
    for verb in ("redrive", "discard"):
        code, _, problem = await dlq(cloud, verb)
        assert (code, "say which letters" in problem) == (2, True)
    code, said, _ = await dlq(cloud, "discard", "--queue", PILE, "--limit", "1")
    assert (code, said) == (0, "discarded 1\n")
    await until(partial(has, url_of(cloud), PILE, 1))
    assert cloud.rows("select action, tenant_id, body from dead_letter_actions") == [
        ("discard", None, odd)
    ]


async def test_an_event_nobody_wanted_goes_back_to_its_exchange(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]]
) -> None:
    await bury()
    url = url_of(cloud)
    async with amqp.connection(url, name="test") as opened:
        channel = await opened.channel()
        queue = await channel.get_queue(bus.FEED.queue, ensure=False)
        days = await channel.get_queue(bus.DAYS.queue, ensure=False)
        for bound in (queue, days):
            await bound.unbind("farmiq.feed.exchange", "feed.lot.received")
        body = written(sample("feed.lot.received"))
        outbox = await consume.confirming(opened)
        await outbox.basic_publish(
            body, exchange="farmiq.feed.exchange", routing_key="feed.lot.received"
        )
        await until(partial(has, url, bus.UNROUTED_QUEUE, 1))
        await queue.bind("farmiq.feed.exchange", "feed.lot.received")
    code, _, problem = await dlq(cloud, "redrive", "--queue", bus.UNROUTED_QUEUE)
    assert code == 0, problem
    await until(partial(has, url, bus.FEED.queue, 1))
    await until(partial(has, url, bus.UNROUTED_QUEUE, 0))


async def test_a_crash_in_the_middle_of_a_redrive_loses_and_doubles_nothing(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]], tasks: asyncio.TaskGroup
) -> None:
    events = [sample("feed.lot.received") for _ in range(130)]
    await bury(*map(written, events))
    url = url_of(cloud)
    options = ("redrive", "--queue", PILE, "--rate", "5000")
    code, _, _ = await dlq(cloud, *options, crash_at="dlq.after_publish:2")
    assert code == -signal.SIGKILL
    await until(partial(has, url, PILE, 80))
    code, said, problem = await dlq(cloud, *options)
    assert (code, said) == (0, "redriven 80\n"), problem
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(sink.run(cloud.settings, server, feed.EVENTS))
    await until(lambda: len(kept(cloud, "feed_events")) == 130)
    await until(partial(has, url, bus.FEED.queue, 0))
    assert set(kept(cloud, "feed_events")) == {each["event_id"] for each in events}
    assert await waiting(url, PILE) == 0


async def test_a_pile_of_thousands_is_browsed_in_order_with_a_window_in_memory(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]]
) -> None:
    bodies = [str(number).encode() for number in range(2500)]
    await bury(*bodies)
    seen: list[bytes] = []
    async with amqp.connection(url_of(cloud), name="test") as opened:
        async for _, window in consume.browse(opened, PILE, window=100):
            assert len(window) <= 100
            seen += [each.body for each in window]
    assert seen == bodies
    await until(partial(has, url_of(cloud), PILE, 2500))


# The command in a process that says at its end how much memory it had at most.
MEASURED = """
import atexit, sys
def peak():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
    sys.stderr.write(line.split()[1])
atexit.register(peak)
from farmiq.cli import main
main()
"""


def peak_kb(cloud: CloudSite, *arguments: str) -> tuple[int, str]:
    """The most memory that `farmiq dlq` took, and what it said."""
    answer = run(cloud, *arguments, python=("-c", MEASURED), timeout=900)
    return int(answer.stderr.split()[-1]), answer.stdout


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_hundred_thousand_letters_are_never_in_memory(
    cloud: CloudSite,
    bury: Callable[..., Awaitable[None]],
    record_property: Callable[[str, object], None],
) -> None:
    count = 100_000
    await bury()
    redrive = ("redrive", "--queue", PILE, "--limit", str(count), "--rate", "5000")
    few, _ = await asyncio.to_thread(peak_kb, cloud, *redrive)
    for _ in range(count // 5000):
        await bury(*(written(sample("feed.lot.received")) for _ in range(5000)))
    for name, arguments, says in (
        ("ls", ("ls",), f"{count:,}  {PILE}  no good"),
        ("dry run", (*redrive, "--dry-run"), f"would redrive {count}"),
        ("redrive", redrive, f"redriven {count}"),
    ):
        most, said = await asyncio.to_thread(peak_kb, cloud, *arguments)
        assert says in said
        record_property(f"{name}: kB more than with no letter", most - few)
        assert most - few < 60 * 1024, name
        left = 0 if name == "redrive" else count
        await until(partial(has, url_of(cloud), PILE, left), within_s=60)
    await until(partial(has, url_of(cloud), bus.FEED.queue, count), within_s=60)
    assert cloud.rows("select count(*), count(distinct event_id) from dead_letter_actions") == [
        (count, count)
    ]


class People:
    """Who calls, by their tokens."""

    def __init__(self, client: httpx2.AsyncClient, tokens: dict[str, str]) -> None:
        self._client, self._tokens = client, tokens

    async def get(self, who: str | None, path: str = "", **query: str) -> httpx2.Response:
        return await self._client.get(
            f"/api/v1/dead-letters{path}", params=query, headers=self._as(who)
        )

    async def post(self, who: str | None, verb: str, body: Any) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {**self._as(who), "content-type": "application/json"}
        return await self._client.post(
            f"/api/v1/dead-letters/{verb}", content=content, headers=headers
        )

    def _as(self, who: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {self._tokens[who]}"} if who else {}


@pytest.fixture
async def people(cloud: CloudSite, tasks: asyncio.TaskGroup) -> AsyncIterator[People]:
    tokens = {}
    with psycopg.connect(cloud.database.admin_url) as connection:
        one, two = (add_company(connection, name, name=name) for name in ("t-001", "t-002"))
        for name, company, role in (
            ("viewer", one, "viewer"),
            ("admin", one, "admin"),
            ("other", two, "admin"),
            ("super", two, "viewer"),
        ):
            email = f"{name}@example.com"
            is_super = name == "super"
            add_user(
                connection, email, company_id=company, password="long enough 1", role=role,
                super_admin=is_super,
            )  # fmt: skip
            tokens[name] = open_sign_in(connection, email, lasts=timedelta(hours=1))
    server = http.HttpServer(title="test", version="0", actions_per_minute=6)
    tasks.create_task(service.run(cloud.settings, server))
    port = cloud.settings.http_port
    tasks.create_task(http.serve(server, host="127.0.0.1", port=port, tls=cloud.settings.tls))
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:

        async def ready() -> bool:
            try:
                return (await client.get("/readyz")).status_code == 200
            except httpx2.HTTPError:
                return False

        await until(ready)
        yield People(client, tokens)


async def test_admins_see_their_company_super_admins_all_and_others_nothing(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]], people: People
) -> None:
    await bury(
        written(sample("feed.lot.received")),
        written(sample("feed.lot.received", tenant_id="t-002")),
        b"nobody's",
    )
    for path in ("", "/messages"):
        assert (await people.get(None, path)).status_code == 401
        assert (await people.get("viewer", path)).status_code == 403
    counts = {}
    for who in ("admin", "other", "super"):
        groups = (await people.get(who)).json()["groups"]
        counts[who] = sum(each["count"] for each in groups)
        # Who has looked through them gives them back a moment later.
        await until(partial(has, url_of(cloud), PILE, 3))
    assert counts == {"admin": 1, "other": 1, "super": 3}
    (letter,) = (await people.get("admin", "/messages")).json()["letters"]
    assert letter["tenant_id"] == "t-001"
    assert "body" not in letter


async def test_an_admin_redrives_only_their_own_and_it_is_audited(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]], people: People
) -> None:
    mine = sample("feed.lot.received")
    await bury(written(mine), written(sample("feed.lot.received", tenant_id="t-002")))
    for verb in ("redrive", "discard"):
        assert (await people.post(None, verb, {})).status_code == 401
        assert (await people.post("viewer", verb, {})).status_code == 403
    dry = await people.post("admin", "redrive", {"dry_run": True, "all": True})
    assert json.loads(dry.text.splitlines()[-1]) == {"summary": {"would redrive": 1}}
    await until(partial(has, url_of(cloud), PILE, 2))
    answer = await people.post("admin", "redrive", {"queue": PILE})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert list(map(json.loads, answer.text.splitlines())) == [
        {"outcome": "redriven", "queue": PILE, "event_id": mine["event_id"]},
        {"summary": {"redriven": 1}},
    ]
    await until(partial(has, url_of(cloud), PILE, 1))
    assert cloud.rows("select actor, tenant_id, event_id from dead_letter_actions") == [
        ("admin@example.com", "t-001", mine["event_id"])
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"\xff", b'{"limit": 0}', b'{"limit": 1e9}', b'{"rate_per_s": -1}',
        b'{"rate_per_s": 1e-300}',
        b'{"dry_run": "yes"}', b'{"queue": "farmiq.cloud-feed-service.ingest.queue"}',
        b'{"unknown": 1}', b"[" * 100_000, b"{}", b'{"limit": 2}',
        b'{"event_ids": [], "reason": ""}',
    ],
)  # fmt: skip
async def test_an_order_that_is_not_valid_is_400_in_the_standard_body(
    people: People, body: bytes
) -> None:
    answer = await people.post("super", "redrive", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "VALIDATION_ERROR"
    assert answer.json()["error"]["details"]


async def test_an_order_that_is_too_long_or_no_json_is_refused(people: People) -> None:
    assert (await people.post("super", "redrive", b" " * 300_000)).status_code == 413
    form = await people._client.post(
        "/api/v1/dead-letters/redrive",
        content=b"{}",
        headers={**people._as("super"), "content-type": "text/plain"},
    )
    assert form.status_code == 415
    assert (await people.get("super", queue="nothing")).status_code == 400


async def test_person_who_asks_too_often_gets_429_and_others_do_not(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No time passes: in ten seconds there would be one more.
    monkeypatch.setattr(http.requests, "time", SimpleNamespace(monotonic=lambda: 0.0))
    asked = [
        (await people.post("admin", "redrive", {"dry_run": True, "all": True})) for _ in range(3)
    ]
    asked += [(await people.get("admin")), (await people.get("admin", "/messages"))]
    asked += [await people.post("admin", "discard", {"limit": 0})]
    assert [each.status_code for each in asked] == [200] * 5 + [400]
    for refused in (await people.post("admin", "discard", {}), await people.get("admin")):
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "TOO_MANY_REQUESTS"
        assert 1 <= int(refused.headers["retry-after"]) <= 10
    assert (await people.get("super")).status_code == 200


async def test_queue_depths_show_in_the_metrics(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]]
) -> None:
    await bury(b"1", b"2")
    async with amqp.connection(url_of(cloud), name="test") as opened:
        await amqp.ensure(opened, bus.whole())
    small = cloud.settings.model_copy(update={"bus_scale": 0.000003})
    async with db.pool(cloud.database.url, name="test") as pool:
        counts = await watch.Watch(small, pool).counts()
    assert watch.limits(small)[PILE] == 3
    assert counts[PILE] == amqp.QueueCount(messages=2, consumers=0)
    assert set(counts) == set(watch.limits(small))


@pytest.mark.req("RB-31")
async def test_events_that_no_queue_wants_raise_the_alert_that_stands_for_a_cap(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]], tasks: asyncio.TaskGroup
) -> None:
    """The unrouted queue has no cap (D-79): figures, a line in the log and a rule speak instead."""
    await bury(b"1", b"2", queue=bus.UNROUTED_QUEUE)
    small = cloud.settings.model_copy(update={"bus_scale": 0.000003})
    async with db.pool(cloud.database.url, name="test") as pool:
        with structlog.testing.capture_logs() as lines:
            watching = tasks.create_task(watch.Watch(small, pool).run())
            await until(lambda: [each for each in lines if each["event"] == "bus.queue_filling"])
            # People who run the cloud see it on a page too.
            await until(lambda: cloud.rows("select 1 from bus_queues"))
        watching.cancel()
    counted = "select messages, consumers, max_messages from bus_queues where queue = "
    assert cloud.rows(f"{counted}'{bus.UNROUTED_QUEUE}'") == [(2, 0, 3)]
    filling = [each for each in lines if each["event"] == "bus.queue_filling"]
    assert [(each["queue"], each["count"], each["limit"]) for each in filling] == [
        (bus.UNROUTED_QUEUE, 2, 3)
    ]
    labels = {"queue": bus.UNROUTED_QUEUE}
    value = prometheus_client.REGISTRY.get_sample_value
    assert value("farmiq_bus_queue_messages", labels) == 2
    assert value("farmiq_bus_queue_limit", labels) == 3


def test_the_rules_speak_of_figures_and_queues_that_there_are(cloud: CloudSite) -> None:
    rules = dict(re.findall(r"- alert: (\w+)\n +expr: (.+)", (DEPLOY / "alerts.yaml").read_text()))
    figures = {each.name for each in prometheus_client.REGISTRY.collect()}
    watched = set(watch.limits(cloud.settings))
    for rule in rules.values():
        named = re.findall(r"farmiq_bus_\w+", rule)
        assert {name.removesuffix("_total") for name in named} <= figures
        assert set(re.findall(r'queue="(.*?)"', rule)) <= watched
        for pattern in re.findall(r'queue=~"(.*?)"', rule):
            plain = pattern.replace("\\\\", "\\")
            assert {each for each in watched if re.fullmatch(plain, each)} == {
                work.dead_letters for work in bus.WORKS
            }
    assert f'queue="{bus.UNROUTED_QUEUE}"}} > 0' in rules["FarmiqUnrouted"]
    assert rules["FarmiqQueueFilling"].endswith(f"> {watch.TOO_FULL}")
