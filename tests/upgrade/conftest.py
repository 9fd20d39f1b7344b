"""A farm of the last release, ready to be upgraded."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farmiq.lab import stack
from farmiq.plumbing import sealing, tokens
from tests.chaos.conftest import IMPATIENT
from tests.conftest import Database
from tests.support import release
from tests.support.engines import state_dir
from tests.support.farm import Farm
from tests.upgrade.balancer import Balancer
from tests.upgrade.rehearsal import NEW, OLD, Rehearsal


@pytest.fixture(scope="session")
def last_release() -> Path:
    return release.last()


@pytest.fixture
def rehearsal(  # noqa: PLR0917 - what a whole farm stands on
    last_release: Path,
    engines: dict[str, str],
    empty_db: Callable[[str], Database],
    broker: stack.Stack,
    vhost: str,
    tmp_path: Path,
    free_port: Callable[[], int],
) -> Iterator[Rehearsal]:
    """On the shared engines; the databases are empty and nothing runs yet."""
    edge, cloud = empty_db("edge"), empty_db("cloud")
    given = {
        **broker.environment,
        **{name: url for name, url in engines.items() if "_S3_" in name},
        "FARMIQ_EDGE_DB_URL": edge.url,
        "FARMIQ_EDGE_DB_ADMIN_URL": edge.admin_url,
        "FARMIQ_CLOUD_DB_URL": cloud.url,
        "FARMIQ_CLOUD_DB_ADMIN_URL": cloud.admin_url,
        "FARMIQ_AMQP_URL": vhost,
    }
    yield from made(given, tmp_path, last_release, free_port)


@pytest.fixture
def whole_rehearsal(
    last_release: Path, tmp_path: Path, free_port: Callable[[], int]
) -> Iterator[Rehearsal]:
    """On engines of its own, of which backups can be made."""
    root = tmp_path / "stack"
    with stack.start(root, downloads=state_dir() / "engines", say=lambda _: None) as engines:
        copies = Path(tempfile.mkdtemp(prefix="farmiq-copies-", dir="/var/tmp"))
        sealing.write_new_key(tmp_path / "backup.key")
        given = {
            **engines.environment,
            "FARMIQ_BACKUP_URL": f"file://{copies}",
            "FARMIQ_BACKUP_KEY_FILE": str(tmp_path / "backup.key"),
            "FARMIQ_BACKUP_SPOOL": str(tmp_path / "spool"),
        }
        yield from made(given, tmp_path, last_release, free_port)
        shutil.rmtree(copies)
    stack.remove(root)


def made(
    given: dict[str, str], folder: Path, tree: Path, free_port: Callable[[], int]
) -> Iterator[Rehearsal]:
    edge = Database(given["FARMIQ_EDGE_DB_URL"], given["FARMIQ_EDGE_DB_ADMIN_URL"])
    cloud = Database(given["FARMIQ_CLOUD_DB_URL"], given["FARMIQ_CLOUD_DB_ADMIN_URL"])
    tokens.write_new_key(folder / "key.json", folder / "keys.json")
    ports = {
        f"{site} {version}": free_port() for site in ("edge", "cloud") for version in (OLD, NEW)
    }
    with Balancer(free_port()) as cloud_door, Balancer(free_port()) as edge_door:
        environment = {
            **given,
            **IMPATIENT,
            "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{cloud_door.port}",
            "FARMIQ_EDGE_KEY_FILE": str(folder / "key.json"),
            "FARMIQ_EDGE_KEYS_FILE": str(folder / "keys.json"),
            "FARMIQ_STATE_DIR": str(folder / "state"),
        }
        farm = Farm(environment, folder, edge, cloud, ports)
        try:
            yield Rehearsal(farm, {"cloud": cloud_door, "edge": edge_door}, tree)
        finally:
            farm.stop()
