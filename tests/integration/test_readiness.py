"""A site with nothing to do is ready again as soon as the engine that was away is back."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx2
import psycopg
import pytest
from psycopg import sql

from farmiq.lab import stack
from farmiq.lab.simulate.link import Link, linked
from farmiq.messages import topics
from farmiq.plumbing import ids, tokens
from farmiq.plumbing.messaging import mqtt
from tests.conftest import Database
from tests.support.devices import KNOWN
from tests.support.farm import Farm
from tests.support.until import until

PLACE = KNOWN[0]

# The checks that must have failed before an engine counts as away: also those of loops that only
# notice when they next look for work.
CHECKS = {
    "edge": {
        "FARMIQ_EDGE_DB_URL": {
            "ingress.database",
            "devices.database",
            "telemetry.database",
            "feed.database",
            "media.database",
            "weighvision.database",
            "sync.database",
            "console.database",
        },
        "FARMIQ_EDGE_MQTT_URL": {"ingress.broker", "devices.broker"},
        "FARMIQ_EDGE_S3_URL": {"media.store"},
    },
    "cloud": {
        "FARMIQ_CLOUD_DB_URL": {
            "edges.database",
            "farms.database",
            "ingestion.database",
            "telemetry.database",
            "weighvision.database",
            "media.database",
            "camera.database",
            "camera.steps",
            "observations.database",
            "inference.database",
            "feed.database",
            "barn.database",
            "device.database",
            "sync.database",
            "kpi.database",
            "calendar.database",
            "camera.accounts",
            "console.database",
            "console.live",
        },
        "FARMIQ_CLOUD_CAMERA_URL": {"camera.broker"},
        "FARMIQ_CLOUD_S3_URL": {"media.store", "camera.store", "observations.store"},
        "FARMIQ_AMQP_URL": {"ingestion.bus", "telemetry.ingest.queue", "telemetry.agg.queue"},
    },
}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[stack.Stack]:
    names = ("mqtt-edge", "mqtt-cloud")
    with stack.start(tmp_path / "b", engines=names, say=lambda _: None) as started:
        yield started


@pytest.fixture
async def links(
    engines: dict[str, str],
    brokers: stack.Stack,
    edge_db: Database,
    cloud_db: Database,
    vhost: str,
) -> AsyncIterator[dict[str, tuple[str, Link]]]:
    """For each setting that names an engine: the address to give it, and the link behind it."""
    urls = {
        **engines,
        **brokers.environment,
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_CLOUD_DB_URL": cloud_db.url,
        "FARMIQ_AMQP_URL": vhost,
    }
    async with AsyncExitStack() as opened:
        found = {}
        for name in (*CHECKS["edge"], *CHECKS["cloud"]):
            parts = urlsplit(urls[name])
            link = await opened.enter_async_context(linked(parts.hostname or "", parts.port or 0))
            login, at, _ = parts.netloc.rpartition("@")
            there = parts._replace(netloc=f"{login}{at}127.0.0.1:{link.port_here}")
            found[name] = (urlunsplit(there), link)
        yield found


@pytest.fixture
async def farm(  # noqa: PLR0917 - what a farm stands on
    links: dict[str, tuple[str, Link]],
    brokers: stack.Stack,
    edge_db: Database,
    cloud_db: Database,
    tmp_path: Path,
    free_port: Callable[[], int],
) -> AsyncIterator[Farm]:
    tokens.write_new_key(tmp_path / "key.json", tmp_path / "keys.json")
    ports = {"edge": free_port(), "cloud": free_port()}
    # Through these the cameras' gateway makes the log that it reads.
    keeper = ("FARMIQ_CLOUD_BROKER_NATS_URL", "FARMIQ_CLOUD_BROKER_MONITOR_URL")
    environment = {
        **{name: brokers.environment[name] for name in keeper},
        **{name: url for name, (url, _) in links.items()},
        "FARMIQ_EDGE_HTTP_PORT": str(ports["edge"]),
        "FARMIQ_CLOUD_HTTP_PORT": str(ports["cloud"]),
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{ports['cloud']}",
        "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
        "FARMIQ_EDGE_KEYS_FILE": str(tmp_path / "keys.json"),
    }
    ports["all"] = ports["edge"]
    made = Farm(environment, tmp_path, edge_db, cloud_db, ports)
    yield made
    # The links are of this loop: a site that stops asks its engines through them.
    await asyncio.to_thread(made.stop)


class Readiness:
    """What the sites of one process say about themselves."""

    def __init__(self, farm: Farm, process: str, *sites: str) -> None:
        self._farm, self._process, self._sites = farm, process, sites
        self.last: dict[str, str] = {}

    async def problems(self) -> dict[str, str]:
        running = self._farm.running[self._process]
        assert running.poll() is None, self._farm.log(self._process)[-3000:]
        self.last = {}
        async with httpx2.AsyncClient(timeout=20) as client:
            for site in self._sites:
                try:
                    answer = await client.get(f"{self._farm.url(site)}/readyz")
                except httpx2.HTTPError as error:
                    self.last[f"{site} http"] = repr(error)
                else:
                    self.last |= answer.json()["problems"]
        return self.last

    async def until(self, *checks: str) -> None:
        """All of these fail; without any, all work."""

        async def reached() -> bool:
            found = await self.problems()
            return set(checks) <= found.keys() if checks else not found

        try:
            await until(reached, within_s=90)
        except AssertionError as error:
            raise AssertionError(f"{error}; waited for {checks}, last: {self.last}") from None


@pytest.mark.req("XC-03")
@pytest.mark.parametrize("site", ["edge", "cloud"])
async def test_an_idle_site_is_ready_again_after_an_engine_was_away(
    farm: Farm, links: dict[str, tuple[str, Link]], site: str
) -> None:
    farm.start(site)
    ready = Readiness(farm, site, site)
    await ready.until()
    for name, checks in CHECKS[site].items():
        _, link = links[name]
        link.refusing = True
        link.cut()
        await ready.until(*checks)
        link.heal()
        await ready.until()


async def test_a_read_only_database_ends_no_process_and_what_was_sent_is_kept_afterwards(
    farm: Farm,
    brokers: stack.Stack,
    links: dict[str, tuple[str, Link]],
    edge_db: Database,
    cloud_db: Database,
) -> None:
    farm.start("all")
    ready = Readiness(farm, "all", "edge", "cloud")
    await ready.until()
    for database, link in (
        (edge_db, links["FARMIQ_EDGE_DB_URL"][1]),
        (cloud_db, links["FARMIQ_CLOUD_DB_URL"][1]),
    ):
        _alter(database, "set default_transaction_read_only = on")
        link.cut()
    url = brokers.environment["FARMIQ_DEVICES_MQTT_URL"]
    async with mqtt.connected(url, client_id="d-0", persistent_session=False) as device:
        await device.until_up()
        await device.publish(topics.telemetry(PLACE, "temperature"), _reading())

        await ready.until("ingress.database", "camera.database")
        assert "read-only" in ready.last["camera.database"]

        for database in (edge_db, cloud_db):
            _alter(database, "reset default_transaction_read_only")
        await ready.until()
        await until(lambda: farm.edge("select id from telemetry_raw"))
    assert "Traceback" not in farm.log("all")


def _alter(database: Database, what: str) -> None:
    with psycopg.connect(database.admin_url, autocommit=True) as connection:
        connection.execute("set default_transaction_read_only = off")
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("alter database {} {}").format(name, sql.SQL(what)))


def _reading() -> bytes:
    return json.dumps(
        {
            "schema_version": "1.0",
            "event_id": str(ids.new()),
            "trace_id": "trace-1",
            "tenant_id": PLACE.tenant_id,
            "device_id": PLACE.device_id,
            "event_type": "telemetry.reading",
            "ts": datetime.now(UTC).isoformat(),
            "payload": {"metric_type": "temperature", "metric_value": 21.5, "unit": "C"},
        }
    ).encode()
