"""A site with nothing to do is ready again as soon as the engine that was away is back."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx2
import pytest

from farmiq import stack
from farmiq.plumbing import tokens
from farmiq.simulate.link import Link, linked
from tests.conftest import Database
from tests.farm import Farm
from tests.until import until

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
        },
        "FARMIQ_EDGE_MQTT_URL": {"ingress.broker", "devices.broker"},
        "FARMIQ_EDGE_S3_URL": {"media.store"},
    },
    "cloud": {
        "FARMIQ_CLOUD_DB_URL": {
            "edges.database",
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
        "FARMIQ_CLOUD_MQTT_URL": {"camera.broker"},
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
def farm(
    links: dict[str, tuple[str, Link]],
    edge_db: Database,
    cloud_db: Database,
    tmp_path: Path,
    free_port: Callable[[], int],
) -> Iterator[Farm]:
    tokens.write_new_key(tmp_path / "key.json", tmp_path / "keys.json")
    environment = {
        **{name: url for name, (url, _) in links.items()},
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{free_port()}",
        "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
        "FARMIQ_EDGE_KEYS_FILE": str(tmp_path / "keys.json"),
    }
    ports = {"edge": free_port(), "cloud": free_port()}
    made = Farm(environment, tmp_path, edge_db, cloud_db, ports)
    yield made
    made.stop()


@pytest.mark.parametrize("site", ["edge", "cloud"])
async def test_an_idle_site_is_ready_again_after_an_engine_was_away(
    farm: Farm, links: dict[str, tuple[str, Link]], site: str
) -> None:
    farm.start(site)
    async with httpx2.AsyncClient(base_url=farm.url(site), timeout=20) as client:

        async def problems() -> dict[str, str]:
            assert farm.running[site].poll() is None, farm.log(site)
            try:
                answer = await client.get("/readyz")
            except httpx2.HTTPError as error:
                return {"http": repr(error)}
            found: dict[str, str] = answer.json()["problems"]
            return found

        async def ready() -> bool:
            last.update({"problems": await problems()})
            return not last["problems"]

        last: dict[str, dict[str, str]] = {}
        await until(ready, within_s=90)
        for name, checks in CHECKS[site].items():
            _, link = links[name]

            async def away(checks: set[str] = checks) -> bool:
                last.update({"problems": await problems()})
                return checks <= last["problems"].keys()

            link.refusing = True
            link.cut()
            try:
                await until(away, within_s=60)
                link.heal()
                await until(ready, within_s=90)
            except AssertionError:
                raise AssertionError(f"{name}: {last}") from None
