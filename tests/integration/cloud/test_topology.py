"""`farmiq topology` on a real broker: empty to whole, twice the same, and logins that suffice."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiormq
import pytest
from typer.testing import CliRunner

from farmiq.cli import app
from farmiq.cloud import bus, sink
from farmiq.cloud.feed import service as feed
from farmiq.lab.demo import provision
from farmiq.plumbing import http
from farmiq.plumbing.bus import amqp, consume
from farmiq.plumbing.bus.delivery import Properties
from tests.conftest import Database
from tests.integration.cloud.conftest import CloudSite
from tests.integration.cloud.test_ingestion import ready
from tests.integration.cloud.test_sinks import kept, outgoing, sample, written
from tests.integration.plumbing.test_amqp import definitions, read_one, says, waiting
from tests.support.until import until

pytestmark = pytest.mark.xdist_group("topology")  # logins are the broker's, not the vhost's


class Command:
    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment

    def __call__(self, *arguments: str) -> tuple[int, Any]:
        answer = CliRunner().invoke(app, ["topology", *arguments, "--json"], env=self._environment)
        assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.output
        return answer.exit_code, json.loads(answer.stdout)


@pytest.fixture
def topology(engines: dict[str, str], vhost: str) -> Command:
    return Command(
        {
            "FARMIQ_AMQP_URL": vhost,
            "FARMIQ_RABBITMQ_API_URL": engines["FARMIQ_RABBITMQ_API_URL"],
            "BUS_RETRY_SECONDS": "0.01,0.02,0.03,0.04",
        }
    )


@pytest.fixture
def work_vhost(vhost: str) -> str:
    """The same that commands work on, with nothing declared."""
    return vhost


def as_login(url: str, name: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{name}:{password}@{host}"))


@pytest.mark.req("RB-31")
async def test_applied_twice_the_second_time_changes_nothing(
    engines: dict[str, str], vhost: str, topology: Command
) -> None:
    code, found = topology("diff")
    assert code == 3
    assert {each["action"] for each in found["differences"]} == {"create"}

    assert topology("apply")[0] == 0
    first = await definitions(engines, vhost)
    assert topology("diff") == (0, {"differences": [], "passwords": {}})
    assert topology("apply") == (0, {"differences": [], "passwords": {}})
    assert await definitions(engines, vhost) == first
    assert {each["type"] for each in first["exchanges"]} == {"topic"}


async def test_bus_and_its_address_are_made_before_anybody_knows_the_address(
    engines: dict[str, str], vhost: str
) -> None:
    name = urlsplit(vhost).path[1:]
    given = {"FARMIQ_RABBITMQ_API_URL": engines["FARMIQ_RABBITMQ_API_URL"], "FARMIQ_AMQP_URL": ""}

    arguments = ("topology", "apply", "--users", "--vhost", name, "--rotate=cloud")
    answer = CliRunner().invoke(app, arguments, env=given)

    assert answer.exit_code == 0, answer.output
    printed = answer.stdout.splitlines()[-1]
    url = printed.removeprefix('FARMIQ_AMQP_URL="').removesuffix('"')
    assert urlsplit(url).path == f"/{name}"
    async with amqp.connection(url, name="test") as opened:
        assert not opened.is_closed
    assert Command(given)("diff", "--vhost", name) == (0, {"differences": [], "passwords": {}})


@pytest.mark.req("RB-31")
async def test_the_bus_of_the_demo_is_whole_with_its_caps(
    engines: dict[str, str], vhost: str, cloud_db: Database, edge_db: Database, tmp_path: Path
) -> None:
    databases = {
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_EDGE_DB_ADMIN_URL": edge_db.admin_url,
        "FARMIQ_CLOUD_DB_URL": cloud_db.url,
        "FARMIQ_CLOUD_DB_ADMIN_URL": cloud_db.admin_url,
    }
    for _ in range(2):
        site = await provision.provision(
            tmp_path, {**engines, **databases, "FARMIQ_AMQP_URL": vhost}, barns=1
        )
    assert Command(site.environment)("diff") == (0, {"differences": [], "passwords": {}})


async def test_what_services_declare_themselves_is_the_same_and_other_arguments_are_a_conflict(
    engines: dict[str, str], vhost: str, topology: Command
) -> None:
    async with amqp.connection(vhost, name="test") as opened:
        await amqp.ensure(opened, bus.part(bus.FEED, (0.01, 0.02, 0.03, 0.04)))
        channel = await opened.channel()
        await channel.declare_queue(bus.BARN.queue, durable=True)
        await channel.declare_queue("farmiq.old.x.queue", durable=True)
    code, found = topology("apply")
    assert code == 3
    named = {(each["action"], each["name"]) for each in found["differences"]}
    assert ("conflict", bus.BARN.queue) in named
    assert ("extra", "farmiq.old.x.queue") in named
    assert not any(name == bus.FEED.queue for _, name in named)
    code, found = topology("diff")
    assert code == 3
    assert {each["action"] for each in found["differences"]} == {"conflict", "extra"}
    assert len((await definitions(engines, vhost))["queues"]) == len(bus.whole().queues) + 1


@pytest.mark.req("RB-03")
async def test_the_login_of_a_service_suffices_for_its_work_and_for_nothing_else(
    cloud: CloudSite, topology: Command, tasks: asyncio.TaskGroup
) -> None:
    every = ("cloud-feed-service", "cloud-ingestion")
    url = cloud.settings.amqp_url.get_secret_value()
    topology("apply", "--users")
    assert topology("diff", "--users")[0] == 0
    _, found = topology("apply", "--users", *(f"--rotate={name}" for name in every))
    assert set(found["passwords"]) == set(every)
    logins = {name: as_login(url, name, found["passwords"][name]) for name in every}

    settings = cloud.settings.model_copy(
        update={
            "amqp_url": type(cloud.settings.amqp_url)(logins["cloud-feed-service"]),
            "bus_retry_s": (0.01, 0.02, 0.03, 0.04),
        }
    )
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(sink.run(settings, server, feed.EVENTS))
    async with amqp.publisher(
        logins["cloud-ingestion"], name="test", topology=bus.TOPOLOGY
    ) as publisher:
        healthy = sample("feed.lot.received")
        foreign = written(sample("feed.lot.received", tenant_id="t-unknown"))
        messages = [outgoing("feed.lot.received", each) for each in (written(healthy), foreign)]
        await publisher.publish(messages, timeout_s=60)
    await until(lambda: kept(cloud, "feed_events") == [healthy["event_id"]])
    assert (await read_one(url, bus.FEED.dead_letters)).body == foreign
    await until(lambda: ready(server))

    async with amqp.connection(logins["cloud-feed-service"], name="test") as opened:
        for attempt in (
            lambda channel: channel.basic_consume(bus.BARN.queue, print),
            lambda channel: channel.queue_declare("farmiq.mine.x.queue", durable=True),
            lambda channel: channel.basic_publish(b"", routing_key=bus.BARN.queue),
            lambda channel: consume.publish(
                channel, bus.BARN.queue, b"", Properties(), exchange=bus.RETRY_EXCHANGE
            ),
        ):
            channel = await consume.confirming(opened)
            with pytest.raises(aiormq.exceptions.ChannelAccessRefused):
                await attempt(channel)
    assert await waiting(url, bus.BARN.queue) == 0


async def test_a_service_that_may_create_nothing_says_what_is_missing(
    cloud: CloudSite, topology: Command
) -> None:
    topology("apply", "--users")
    url = cloud.settings.amqp_url.get_secret_value()
    _, found = topology("apply", "--users", "--rotate=cloud-ingestion")
    async with amqp.connection(url, name="test") as opened:
        await (await opened.channel()).queue_delete(bus.BARN.queue)
    login = as_login(url, "cloud-ingestion", found["passwords"]["cloud-ingestion"])
    async with amqp.publisher(login, name="test", topology=bus.TOPOLOGY) as publisher:
        missing = f"there is no queue {bus.BARN.queue}: `farmiq topology apply` creates it"
        await until(lambda: says(publisher, missing))
