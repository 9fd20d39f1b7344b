"""Fixtures: real engines, isolated cheaply.

A test gets a database of its own (as a migrated template is), a vhost of its own on
RabbitMQ and a broker of its own for MQTT, so tests run in any order and side by side.
"""

import asyncio
import contextlib
import fcntl
import functools
import gc
import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import argon2
import httpx2
import psycopg
import pytest
import structlog
from _pytest.nodeid import coerce_node_id
from hypothesis import HealthCheck, settings
from psycopg import sql

from farmiq import process
from farmiq.cloud.identity import passwords
from farmiq.lab import stack
from farmiq.lab.stack import debian
from farmiq.plumbing import migrations
from farmiq.plumbing.storage import objects
from farmiq.services import SQL
from tests.chaos.summary import fault_lines
from tests.support import databases, devices, ports, rewriting, vhosts
from tests.support.engines import Engines, state_dir
from tests.support.properties import EXPLORING, REPEATABLE, USUAL, some

# Speed is not what properties are about: a busy machine must not fail them. Their tests reckon with
# a fixture that all examples share.
settings.register_profile(
    EXPLORING,
    max_examples=USUAL,
    deadline=None,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# The same examples in every run: what is found at random is found by `make test-long`.
settings.register_profile(
    REPEATABLE,
    settings.get_profile(EXPLORING),
    derandomize=True,
    max_examples=some(USUAL),
)
settings.load_profile(REPEATABLE)

_engines = pytest.StashKey[Engines]()

# What is imported and collected stays to the end: not searched for cycles, neither meanwhile nor
# with every test; and no more often than the services do for themselves (farmiq/process.py).
gc.disable()
gc.set_threshold(process.GARBAGE)

# What a hash costs is for test_passwords.py to look at; hundreds of tests only need to sign in.
DEAR = passwords.hasher
passwords.hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)

# Nor does each question by HTTP read the authorities of this machine again: 25 ms of our time, in
# every look of a test that waits.
TRUSTING = httpx2.create_ssl_context()
_transports: Any = importlib.import_module("httpx2._transports.default")
_make_context = _transports.create_ssl_context


def _shared_context(*, verify: Any, **others: Any) -> Any:
    return TRUSTING if verify is True else _make_context(verify=verify, **others)


_transports.create_ssl_context = _shared_context

# Nor does each bucket make a client of its own for the same store: 30 ms.
_objects: Any = objects
_objects.client = functools.cache(objects.client)

# A traceback of a service in this process is for a test that failed: not drawn with all its
# variables, which takes a core a tenth of a second, for each time that a service was refused.
structlog.get_config()["processors"][-1].exception_formatter = structlog.dev.plain_traceback


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pictures", action="store_true", help="keep pictures of the pages")


def pytest_configure(config: pytest.Config) -> None:
    engines = Engines(config)
    config.stash[_engines] = engines
    config.pluginmanager.register(engines, "farmiq-engines")
    beside = rewriting.start(config)
    engines.start()
    rewriting.wait(beside)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of a group go to one worker, one after the other; the longest test is not the last.

    pytest-xdist 3.8 writes the group where pytest 9.2 no longer looks for it.
    """
    if getattr(config.option, "loadgroup", False):
        items.sort(key=lambda item: "tests/upgrade/" not in item.nodeid)
        for item in items:
            group = item.get_closest_marker("xdist_group")
            # Whole farms of a dozen processes: two of them at once would only time each other out.
            whole_farm = "idle_farm" in getattr(item, "fixturenames", ())
            name = group.args[0] if group is not None else "chaos" if whole_farm else None
            if name is not None and "@" not in item.nodeid:
                item._id = coerce_node_id(f"{item.nodeid}@{name}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_engines].stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line per kind of fault: what was broken, how often, and what it cost."""
    faults: list[Any] = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "fault"
    ]
    if faults:
        terminalreporter.section("faults")
        for line in fault_lines(faults):
            terminalreporter.write_line(line)


@pytest.fixture(params=[1, *(pytest.param(turn, marks=pytest.mark.long) for turn in (2, 3))])
def again(request: pytest.FixtureRequest) -> int:
    """Once in `make test`, twice more in `make test-long`: what depends on the moment."""
    return int(request.param)


@pytest.fixture(autouse=True)
def _log_as_at_first() -> Iterator[None]:
    """A command that a test runs in this process sets the level of the log for all after it."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def engines(request: pytest.FixtureRequest) -> dict[str, str]:
    """Addresses of the shared engines, by the names of the settings."""
    found = request.config.stash[_engines].environment
    assert found, "this test needs engines, but the run was started for folders that need none"
    return found


@dataclass(frozen=True, slots=True)
class Database:
    """`url` is the services' login, `admin_url` the owner's."""

    url: str
    admin_url: str


@pytest.fixture
def edge_db(engines: dict[str, str]) -> Iterator[Database]:
    yield from _database(engines, "edge")


@pytest.fixture
def cloud_db(engines: dict[str, str]) -> Iterator[Database]:
    yield from _database(engines, "cloud")


@pytest.fixture
def empty_db(engines: dict[str, str]) -> Iterator[Callable[[str], Database]]:
    """Makes databases without a schema on the server of a site."""
    with contextlib.ExitStack() as made:
        yield lambda site: made.enter_context(_without_schema(engines, site))


@pytest.fixture
def vhost(engines: dict[str, str]) -> Iterator[str]:
    """An AMQP address with nothing declared on it."""
    with vhosts.made(engines) as address:
        yield address


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[stack.Stack]:
    """An MQTT broker of this test's own: gateways listen to whole trees of topics."""
    root = tmp_path / "broker"
    with stack.start(root, engines=("mqtt-edge",), say=lambda _: None) as started:
        yield started


@pytest.fixture(scope="session")
def chromium() -> Path:
    return debian.chromium_path(state_dir() / "engines")


@pytest.fixture
def free_port() -> Callable[[], int]:
    return ports.free_port


@pytest.fixture
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """Services in the background of a test; they are cancelled when it ends."""
    with contextlib.suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            yield group
            raise asyncio.CancelledError


def _database(engines: dict[str, str], site: str) -> Iterator[Database]:
    with databases.lend(_admin(engines, site), _template(engines, site)) as name:
        yield _addresses(engines, site, name)


@contextlib.contextmanager
def _without_schema(engines: dict[str, str], site: str) -> Iterator[Database]:
    with psycopg.connect(_admin(engines, site), autocommit=True) as connection:
        name = databases.copy(connection, "template0")
        try:
            yield _addresses(engines, site, name)
        finally:
            databases.drop(connection, name)


def _addresses(engines: dict[str, str], site: str, name: str) -> Database:
    url = engines[f"FARMIQ_{site.upper()}_DB_URL"]
    return Database(databases.named(url, name), databases.named(_admin(engines, site), name))


def _template(engines: dict[str, str], site: str) -> str:
    """A migrated database that tests copy; whichever worker comes first makes it."""
    name = f"template_{site}"
    root = Path(engines["FARMIQ_TEST_ROOT"])
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with psycopg.connect(_admin(engines, site), autocommit=True) as connection:
            known = connection.execute("select from pg_database where datname = %s", (name,))
            if known.fetchone() is None:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
                migrations.apply(databases.named(_admin(engines, site), name), SQL[site])
                if site == "edge":
                    devices.register_known(databases.named(_admin(engines, site), name))
    return name


def _admin(engines: dict[str, str], site: str) -> str:
    return engines[f"FARMIQ_{site.upper()}_DB_ADMIN_URL"]
