"""The schema files say what is; the migrations lead there; both give the same database."""

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
from farmiq.process import SQL
from tests.conftest import Database
from tests.migration import additive
from tests.sql import catalog
from tests.support import databases


@pytest.mark.parametrize("site", ["edge", "cloud"])
def test_schema_files_and_migrations_give_the_same_database(
    site: str, empty_db: Callable[[str], Database]
) -> None:
    migrated, written = empty_db(site), empty_db(site)
    migrations.apply(migrated.admin_url, SQL[site])
    _build_from_schema_files(written.admin_url, SQL[site])
    ours = [row for row in catalog.dump(migrated.admin_url) if "schema_migrations" not in row[1]]
    assert ours == catalog.dump(written.admin_url)
    assert len(ours) > 30


def _build_from_schema_files(url: str, folder: Path) -> None:
    functions = sorted((folder / "functions").glob("*.sql"))
    with psycopg.connect(url) as connection:
        connection.execute("set check_function_bodies = off")
        for file in [folder / "roles.sql", *functions, *sorted((folder / "schema").glob("*.sql"))]:
            connection.execute(file.read_bytes())


@pytest.mark.parametrize("site", ["edge", "cloud"])
def test_every_schema_file_holds_one_table(site: str) -> None:
    for file in (SQL[site] / "schema").glob("*.sql"):
        text = file.read_text()
        name = file.stem.partition("_")[2]
        assert f"create table {name} (" in text, f"{file.name} should create the table {name}"


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
    if older.exists():
        return older
    shutil.copytree(SQL[site], older)
    for file in migrations.read(older)[number:]:
        (older / "migrations" / f"{file.name}.sql").unlink()
    return older


def _version_end(files: list[migrations.Migration], *, after: int) -> int:
    """The next end of a version: where a post file stands before a pre one."""
    phases = [file.phase for file in files]
    ends = (n for n in range(after + 1, len(files)) if phases[n - 1 : n + 1] == ["post", "pre"])
    return next(ends, len(files))


@pytest.mark.req("UP-01")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("site", list(SQL))
def test_every_earlier_revision_leads_to_the_same_database(
    site: str, empty_db: Callable[[str], Database], tmp_path: Path
) -> None:
    """From empty, and from each revision there ever was, in two phases as in one.

    Each revision is brought to the end of its version, in two phases, and must be the database
    that one revision after the other leads to; so the way from there on is the same.
    """
    earlier, fresh = empty_db(site), empty_db(site)
    migrations.apply(fresh.admin_url, SQL[site])
    files = migrations.read(SQL[site])
    upgrades: dict[int, list[tuple[int, object]]] = {}
    for number in range(len(files) + 1):
        migrations.apply(earlier.admin_url, _until(site, number, tmp_path))
        here = catalog.dump(earlier.admin_url)
        for start, upgraded in upgrades.pop(number, []):
            assert upgraded == here, (start, number)
        if number < len(files):
            end = _version_end(files, after=number)
            with _copied(earlier, server=fresh.admin_url) as copy:
                for phase in ("pre", "post"):
                    migrations.apply(copy, _until(site, end, tmp_path), phase=phase)
                upgrades.setdefault(end, []).append((number, catalog.dump(copy)))
    assert upgrades == {}
    assert migrations.problem(earlier.admin_url, SQL[site]) is None
    assert here == catalog.dump(fresh.admin_url)


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
    for file in migrations.read(SQL[site])[1:]:
        if file.phase == "pre":
            assert additive.problems(file.sql) == [], file.name
