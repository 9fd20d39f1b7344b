"""The schema files say what is; the migrations lead there from the last release."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from farmiq import config
from farmiq.plumbing import migrations
from farmiq.services import SQL
from tests.conftest import Database
from tests.migration import additive
from tests.sql import catalog
from tests.support import databases, release


@pytest.mark.parametrize("site", ["edge", "cloud"])
def test_every_schema_file_holds_one_table_or_view(site: str) -> None:
    for file in (SQL[site] / "schema").glob("*.sql"):
        text = file.read_text()
        name = file.stem.partition("_")[2]
        made = (f"create table {name} (", f"create view {name} with (security_invoker = true)")
        assert any(words in text for words in made), f"{file.name} should create {name}"


@pytest.mark.parametrize("site", ["edge", "cloud"])
def test_no_two_functions_share_a_name(site: str, empty_db: Callable[[str], Database]) -> None:
    database = empty_db(site)
    migrations.apply(database.admin_url, SQL[site])
    names = [row[1] for row in catalog.dump(database.admin_url) if row[0] == "function"]
    assert names
    assert len(names) == len(set(names))


@pytest.mark.req("UP-02")
def test_a_service_started_on_a_database_that_is_not_migrated_refuses_it(
    empty_db: Callable[[str], Database], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    database = empty_db("edge")
    environment = {
        "FARMIQ_EDGE_DB_URL": database.url,
        "FARMIQ_EDGE_MQTT_URL": "mqtt://127.0.0.1:9",
        "FARMIQ_EDGE_HTTP_PORT": str(free_port()),
        "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
        "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
        "FARMIQ_STATE_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "farmiq", "run", "edge-telemetry-timeseries"],
        env=config.environment(over=environment), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "farmiq migrate" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    migrations.apply(database.admin_url, SQL["edge"])
    assert migrations.problem(database.url, SQL["edge"]) is None


def _until(site: str, number: int, folder: Path) -> Path:
    """The site's SQL with its first migrations only."""
    older = folder / f"until-{number}"
    shutil.copytree(SQL[site], older)
    for file in migrations.read(older)[number:]:
        (older / "migrations" / f"{file.name}.sql").unlink()
    return older


@pytest.mark.req("UP-01")
@pytest.mark.parametrize("each", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("site", list(SQL))
def test_last_release_and_every_revision_since_lead_to_the_schema(
    site: str, empty_db: Callable[[str], Database], tmp_path: Path, *, each: bool
) -> None:
    """From the release and from revisions since, in two phases, as from nothing.

    From wherever they begin, the same files run in the same order, with functions and roles in
    between as often as somebody migrates: never, by half of the revisions, and by each of them.
    """
    earlier, fresh = empty_db(site), empty_db(site)
    migrations.apply(fresh.admin_url, SQL[site])
    wanted = catalog.dump(fresh.admin_url)
    assert len(wanted) > 30
    migrations.apply(earlier.admin_url, release.sql(site, tmp_path))
    files = migrations.read(SQL[site])
    taken = range(len(files) + 1) if each else (0, len(files) // 2, len(files))
    for number in range(len(files) + 1):
        migrations.apply(earlier.admin_url, _until(site, number, tmp_path))
        phases = [migrations.chosen(files[number:], phase) for phase in ("pre", "all")]
        assert phases[0] + [file for file in files[number:] if file.phase == "post"] == phases[1]
        if number not in taken:
            continue
        with _copied(earlier, server=fresh.admin_url) as copy:
            for phase in ("pre", "post"):
                migrations.apply(copy, SQL[site], phase=phase)
            assert catalog.dump(copy) == wanted, number
            assert migrations.problem(copy, SQL[site]) is None


@contextlib.contextmanager
def _copied(database: Database, *, server: str) -> Iterator[str]:
    """The owner's address of a copy; `server` is an address of another database there."""
    with psycopg.connect(server, autocommit=True) as owner:
        name = databases.copy(owner, urlsplit(database.admin_url).path.lstrip("/"))
        try:
            yield databases.named(database.admin_url, name)
        finally:
            databases.drop(owner, name)


@pytest.mark.req("UP-03")
@pytest.mark.parametrize("site", list(SQL))
def test_what_runs_before_the_new_code_only_adds(site: str) -> None:
    for file in migrations.read(SQL[site]):
        if file.phase == "pre":
            assert additive.problems(file.sql) == [], file.name
