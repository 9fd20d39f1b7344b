"""Dead letters without a person: redriven when their cause is over, told of when it is not."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from farmiq.cloud import bus, sink
from farmiq.cloud.deadletter import jobs, rules, store
from farmiq.cloud.deadletter.jobs import DeadLetterJob
from farmiq.cloud.feed import service as feed
from farmiq.cloud.identity.accounts import add_company
from farmiq.plumbing import db, http
from farmiq.plumbing.bus import amqp, consume
from farmiq.plumbing.bus import delivery as deliveries
from tests.integration.cloud.conftest import CloudSite
from tests.integration.cloud.test_deadletter import PILE, bury, has, patient, url_of
from tests.integration.cloud.test_sinks import kept, sample, written
from tests.integration.plumbing.test_amqp import waiting
from tests.support import preloaded
from tests.support.until import until

__all__ = ["bury", "patient"]  # fixtures

Bury = Callable[..., Awaitable[None]]
EPISODES = """
    select tenant_id, state, last_value, source, message from alert_episodes
    where cause = 'deadletters:farmiq.cloud-feed-service.dlq.queue' order by raised_at, tenant_id
    """


@pytest.fixture
async def pool(cloud: CloudSite) -> AsyncIterator[db.Pool]:
    async with db.pool(cloud.database.url, name="test") as opened:
        yield opened


@pytest.fixture
def job(cloud: CloudSite, pool: db.Pool, monkeypatch: pytest.MonkeyPatch) -> DeadLetterJob:
    monkeypatch.setattr(jobs, "GONE_S", 0.0)
    settings = cloud.settings.model_copy(update={"operator_tenant": "t-002"})
    return DeadLetterJob(settings, pool)


def register(cloud: CloudSite, tenant_id: str) -> None:
    with psycopg.connect(cloud.database.admin_url) as connection:
        add_company(connection, tenant_id, name=tenant_id)


async def die_again(cloud: CloudSite, reason: str) -> None:
    """Do what a consumer does with a message that it cannot take."""
    async with amqp.connection(url_of(cloud), name="test") as opened:
        outbox = await consume.confirming(opened)
        inbox = await consume.subscribe(opened, bus.FEED.queue, prefetch=1)
        (delivery,) = await inbox.batch(max_messages=1, linger_s=0.0)
        properties = deliveries.failed_properties(
            delivery, queue=bus.FEED.queue, attempts=5, reason=reason, at=datetime.now(UTC)
        )
        await consume.publish(outbox, PILE, delivery.body, properties)
        await inbox.ack(delivery)


@pytest.mark.req("BY-13")
async def test_letters_of_a_company_that_was_added_since_are_redriven_once_by_the_system(
    cloud: CloudSite, bury: Bury, job: DeadLetterJob, tasks: asyncio.TaskGroup
) -> None:
    late = [sample("feed.lot.received", tenant_id="t-late") for _ in range(60)]
    await bury(*map(written, late), reason=bus.unknown_tenant("t-late"))
    never = written(sample("feed.lot.received", tenant_id="t-never"))
    await bury(never, reason=bus.unknown_tenant("t-never"))
    assert await job.run_once() == {"redriven": 0}
    await until(partial(has, url_of(cloud), PILE, 61))
    register(cloud, "t-late")

    assert await job.run_once() == {"redriven": 60}
    tasks.create_task(
        sink.run(cloud.settings, http.HttpServer(title="test", version="0"), feed.EVENTS)
    )
    await until(lambda: len(kept(cloud, "feed_events")) == 60)
    assert set(kept(cloud, "feed_events")) == {event["event_id"] for event in late}
    await until(partial(has, url_of(cloud), PILE, 1))
    audit = cloud.rows(
        "select actor, action, tenant_id, outcome, count(*) from dead_letter_actions "
        "group by 1, 2, 3, 4"
    )
    assert audit == [("system", "redrive", "t-late", "redriven", 60)]
    ((tenant_id, state, count, source, message),) = cloud.rows(EPISODES)
    assert (tenant_id, state, count, source) == ("t-002", "active", 1, "cloud")
    # Who runs the cloud is told of it without the name of a company that is not theirs.
    assert message == (
        "1 event waits in the dead letters of cloud-feed-service: tenant … is not registered here "
        f"(1). Repair the cause, then: farmiq dlq redrive --queue {PILE}"
    )


async def test_letter_that_dies_again_is_redriven_twice_and_then_left_to_a_person(
    cloud: CloudSite, bury: Bury, job: DeadLetterJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(written(sample("feed.lot.received")), reason=rules.CONSUMER_ENDED)
    assert await job.run_once() == {"redriven": 1}
    await die_again(cloud, rules.CONSUMER_ENDED)
    # Its second time has not come yet, so that nobody is told either.
    assert await job.run_once() == {"redriven": 0}
    assert cloud.rows(EPISODES) == []
    await until(partial(has, url_of(cloud), PILE, 1))

    monkeypatch.setattr(rules, "REDRIVE_AFTER_S", (0.0, 0.0))
    job._looks.clear()
    assert await job.run_once() == {"redriven": 1}
    await die_again(cloud, rules.CONSUMER_ENDED)
    job._looks.clear()
    assert await job.run_once() == {"redriven": 0}
    ((tenant_id, state, count, _, message),) = cloud.rows(EPISODES)
    assert (tenant_id, state, count) == ("t-001", "active", 1)
    assert message.endswith(f"farmiq dlq redrive --queue {PILE} --tenant t-001")
    await until(partial(has, url_of(cloud), PILE, 1))


async def test_each_company_has_its_own_episode_until_its_letters_are_gone(
    cloud: CloudSite, bury: Bury, job: DeadLetterJob
) -> None:
    await bury(written(sample("feed.lot.received")), reason="weight 7 is not possible")
    await bury(written(sample("feed.lot.received", tenant_id="t-002")), reason="it is too wide")
    await bury(b"nobody can read this", reason="not JSON")
    await job.run_once()
    await until(partial(has, url_of(cloud), PILE, 3))
    one, two = cloud.rows(EPISODES)
    assert one[:3] == ("t-001", "active", 1)
    assert "weight … is not possible (1)" in one[4]
    assert "wide" not in one[4]
    assert one[4].endswith(f"farmiq dlq redrive --queue {PILE} --tenant t-001")
    assert two[:3] == ("t-002", "active", 2)
    assert "it is too wide (1); not JSON (1)" in two[4]
    # Those of nobody are the operator's: the command is for all.
    assert two[4].endswith(f"farmiq dlq redrive --queue {PILE}")

    # Again and again it is the same episode, and the letters stay.
    job._looks.clear()
    await job.run_once()
    await until(partial(has, url_of(cloud), PILE, 3))
    assert [row[:3] for row in cloud.rows(EPISODES)] == [one[:3], two[:3]]

    async with amqp.connection(url_of(cloud), name="test") as opened:
        await (await (await opened.channel()).get_queue(PILE)).purge()
    await job.run_once()
    assert [row[:2] for row in cloud.rows(EPISODES)] == [
        ("t-001", "resolved"),
        ("t-002", "resolved"),
    ]


async def test_letters_that_somebody_lists_do_not_end_the_episode(
    cloud: CloudSite, bury: Bury, job: DeadLetterJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "GONE_S", 60.0)
    await bury(written(sample("feed.lot.received")))
    await job.run_once()
    await until(partial(has, url_of(cloud), PILE, 1))
    async with amqp.connection(url_of(cloud), name="a person") as opened:
        async for _ in consume.browse(opened, PILE):
            assert await job.run_once() == {"redriven": 0}
            assert await waiting(url_of(cloud), PILE) == 0
    await until(partial(has, url_of(cloud), PILE, 1))
    await job.run_once()
    assert [row[:2] for row in cloud.rows(EPISODES)] == [("t-001", "active")]


async def test_job_waits_while_a_person_moves_letters(
    bury: Bury, job: DeadLetterJob, pool: db.Pool
) -> None:
    await bury(written(sample("feed.lot.received")), reason=rules.CONSUMER_ENDED)
    async with store.exclusive(pool, wait_s=1.0):
        assert await job.run_once() == {}
    assert await job.run_once() == {"redriven": 1}


async def test_letter_that_was_returned_often_is_renewed_and_stays_as_it_is(
    cloud: CloudSite, bury: Bury, job: DeadLetterJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ 4 drops what was returned twenty times, if no policy says otherwise."""
    monkeypatch.setattr(jobs, "RENEW_AT", 3)
    body = written(sample("feed.lot.received"))
    await bury(body, reason="no good")
    returned = []
    for _ in range(6):
        await until(partial(has, url_of(cloud), PILE, 1))
        async with amqp.connection(url_of(cloud), name="test") as opened:
            async for _, (delivery,) in consume.browse(opened, PILE):
                returned.append(delivery.returned)
                letter = rules.read(PILE, delivery)
        assert (delivery.body, letter.reason, letter.origin) == (body, "no good", bus.FEED.queue)
        await until(partial(has, url_of(cloud), PILE, 1))
        job._looks.clear()
        await job.run_once()
    assert max(returned) <= 3 < len(returned)
    assert await waiting(url_of(cloud), PILE) == 1


@pytest.fixture
def service(cloud: CloudSite, tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    running: list[subprocess.Popen[bytes]] = []

    def start(crash_at: str = "") -> "subprocess.Popen[bytes]":
        environment = {
            "FARMIQ_CLOUD_DB_URL": cloud.database.url,
            "FARMIQ_AMQP_URL": url_of(cloud),
            "FARMIQ_CLOUD_HTTP_PORT": str(cloud.settings.http_port),
            "FARMIQ_CRASH_AT": crash_at,
        }
        log = tmp_path / "deadletter.log"
        running.append(preloaded.run("cloud-deadletter-service", environment, log=log))
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()


async def ended(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is not None


async def test_kill_in_the_middle_of_a_redrive_without_a_person_loses_and_doubles_nothing(
    cloud: CloudSite, bury: Bury, service: Callable[..., Any], tasks: asyncio.TaskGroup
) -> None:
    events = [sample("feed.lot.received") for _ in range(120)]
    await bury(*map(written, events), reason=rules.CONSUMER_ENDED)
    killed = service(crash_at="dlq.after_publish:2")
    await until(partial(ended, killed), within_s=90)
    assert killed.returncode == -signal.SIGKILL
    await until(partial(has, url_of(cloud), PILE, 70))
    service()
    await until(partial(has, url_of(cloud), PILE, 0), within_s=90)
    tasks.create_task(
        sink.run(cloud.settings, http.HttpServer(title="test", version="0"), feed.EVENTS)
    )
    await until(lambda: len(kept(cloud, "feed_events")) == 120)
    await until(partial(has, url_of(cloud), bus.FEED.queue, 0))
    assert sorted(kept(cloud, "feed_events")) == sorted(event["event_id"] for event in events)
    assert await waiting(url_of(cloud), PILE) == 0


async def test_kill_while_a_letter_is_renewed_leaves_it_there(
    cloud: CloudSite, bury: Bury, service: Callable[..., Any]
) -> None:
    body = written(sample("feed.lot.received"))
    await bury(body)
    for _ in range(jobs.RENEW_AT):
        await until(partial(has, url_of(cloud), PILE, 1))
        async with amqp.connection(url_of(cloud), name="test") as opened:
            async for _ in consume.browse(opened, PILE):
                pass
    await until(partial(has, url_of(cloud), PILE, 1))
    killed = service(crash_at="dlq.after_renewal")
    await until(partial(ended, killed), within_s=90)
    assert killed.returncode == -signal.SIGKILL
    await until(partial(has, url_of(cloud), PILE, 2))
    async with amqp.connection(url_of(cloud), name="test") as opened:
        bodies = [item.body async for _, window in consume.browse(opened, PILE) for item in window]
    assert bodies == [body, body]
