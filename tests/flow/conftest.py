"""The whole way on engines of the test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from farmiq.cloud.identity.accounts import add_company, add_user
from farmiq.lab import stack
from farmiq.plumbing import tokens
from farmiq.services import SITES
from tests.conftest import Database
from tests.support.farm import PASSWORD, STARTED, TENANT, Farm
from tests.support.weighing_farm import ports


@pytest.fixture
def idle_farm(  # noqa: PLR0917 - what a whole farm stands on
    edge_db: Database,
    cloud_db: Database,
    broker: stack.Stack,
    vhost: str,
    tmp_path: Path,
    free_port: Callable[[], int],
) -> Iterator[Farm]:
    """Everything provisioned, nothing running yet."""
    tokens.write_new_key(tmp_path / "key.json", tmp_path / "keys.json")
    with psycopg.connect(cloud_db.admin_url) as connection:
        company = add_company(connection, TENANT, name="Hillside Farm")
        add_user(connection, "p@hillside.farm", company_id=company, password=PASSWORD)
    of_services = {service.name: free_port() for service in STARTED}
    environment = {
        **broker.environment,
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_EDGE_DB_ADMIN_URL": edge_db.admin_url,
        "FARMIQ_CLOUD_DB_URL": cloud_db.url,
        "FARMIQ_CLOUD_DB_ADMIN_URL": cloud_db.admin_url,
        "FARMIQ_AMQP_URL": vhost,
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{of_services['cloud-ingestion']}",
        "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
        "FARMIQ_EDGE_KEYS_FILE": str(tmp_path / "keys.json"),
        # Leases end soon, so that what a killed service held is free again within the test.
        "SYNC_LEASE_SECONDS": "3",
        "SYNC_TIMEOUT_SECONDS": "2",
        "INGRESS_LEASE_SECONDS": "2",
    }
    farm = Farm(environment, tmp_path, edge_db, cloud_db, of_services)
    yield farm
    farm.stop()


@pytest.fixture
def two_sites(idle_farm: Farm, engines: dict[str, str], free_port: Callable[[], int]) -> Farm:
    """Provisioned to run edge and cloud as one process each; nothing runs yet."""
    idle_farm.environment |= {name: url for name, url in engines.items() if "_S3_" in name}
    ports(idle_farm, free_port, *SITES)
    return idle_farm


@pytest.fixture
async def farm(idle_farm: Farm) -> Farm:
    """Every service is a process of its own."""
    for service in STARTED:
        idle_farm.start(service.name)
    await idle_farm.until_ready()
    return idle_farm
