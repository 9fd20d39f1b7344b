"""A whole farm on a stack of its own, which the tests here break one piece at a time."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from farmiq import services
from farmiq.cloud.identity.accounts import add_company
from farmiq.lab import stack
from farmiq.plumbing import migrations, tokens
from farmiq.services import SQL
from tests.chaos.rounds import Battered
from tests.conftest import Database
from tests.support import devices
from tests.support.engines import state_dir
from tests.support.farm import TENANT, Farm
from tests.support.ports import free_port
from tests.support.weighing_farm import WeighingFarm

# Everything waits briefly and in small portions, so that a round has work in hand and is short.
IMPATIENT = {
    "INGRESS_BATCH_EVENTS": "160",
    "INGRESS_LEASE_SECONDS": "2",
    "SYNC_BATCH_EVENTS": "40",
    "SYNC_LEASE_SECONDS": "3",
    "SYNC_TIMEOUT_SECONDS": "2",
    "SYNC_BREAKER_MAX_SECONDS": "1",
    "SYNC_BACKOFF_BASE_SECONDS": "0.1",
    "SYNC_BACKOFF_MAX_SECONDS": "1",
    "SYNC_POLL_MS": "500",
    "MEDIA_LEASE_SECONDS": "3",
}


@dataclass
class Weighing:
    """What a test of weigh stations breaks: the farm's processes and its engines."""

    account: WeighingFarm
    engines: stack.Stack

    @property
    def farm(self) -> Farm:
        return self.account.farm

    async def start(self, *names: str) -> None:
        for name in names:
            self.farm.start(name)
        await self.farm.until_ready(*names)


@pytest.fixture(scope="module")
def whole_farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Battered]:
    folder = tmp_path_factory.mktemp("chaos")
    root, downloads = folder / "stack", state_dir() / "engines"
    with stack.start(root, downloads=downloads) as engines:
        farm = provisioned(folder, engines.environment)
        try:
            yield Battered(farm, engines)
        finally:
            farm.stop()
    stack.remove(root)


@pytest.fixture
def battered(whole_farm: Battered, again: int) -> Battered:  # noqa: ARG001 - it makes the rounds
    """The farm of a fault that comes at another moment in each round."""
    return whole_farm


def provisioned(
    folder: Path,
    given: Mapping[str, str],
    *,
    register: Callable[[str], object] = devices.register_known,
) -> Farm:
    edge = Database(given["FARMIQ_EDGE_DB_URL"], given["FARMIQ_EDGE_DB_ADMIN_URL"])
    cloud = Database(given["FARMIQ_CLOUD_DB_URL"], given["FARMIQ_CLOUD_DB_ADMIN_URL"])
    migrations.apply(edge.admin_url, SQL["edge"])
    register(edge.admin_url)
    migrations.apply(cloud.admin_url, SQL["cloud"])
    with psycopg.connect(cloud.admin_url) as connection:
        add_company(connection, TENANT, name="Hillside Farm")
    tokens.write_new_key(folder / "key.json", folder / "keys.json")
    ports = {service.name: free_port() for service in services.SERVICES}
    ports |= {site: free_port() for site in services.SITES}
    environment = {
        **given,
        **IMPATIENT,
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{ports['cloud-ingestion']}",
        "FARMIQ_EDGE_KEY_FILE": str(folder / "key.json"),
        "FARMIQ_EDGE_KEYS_FILE": str(folder / "keys.json"),
    }
    return Farm(environment, folder, edge, cloud, ports)


@pytest.fixture
def weighing(tmp_path: Path) -> Iterator[Weighing]:
    """A farm for weigh stations, on engines of its own; nothing of it runs yet."""
    root = tmp_path / "stack"
    with stack.start(root, downloads=state_dir() / "engines", say=lambda _: None) as engines:
        farm = provisioned(tmp_path, engines.environment)
        farm.environment["FARMIQ_CLOUD_URL"] = farm.url("cloud")
        try:
            yield Weighing(WeighingFarm(farm), engines)
        finally:
            farm.stop()
    stack.remove(root)
