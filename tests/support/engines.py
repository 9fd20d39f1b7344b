"""One set of real engines for a whole test run, started by its first process.

With several workers the controller starts the engines and hands their addresses to the workers;
when it ends, however it ends, the engines end with it.
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from farmiq.lab import stack

DATABASES = ("postgres-edge", "postgres-cloud")
ENGINES = (*DATABASES, "rabbitmq", "s3")
# What a run of only these folders starts; any other needs all.
LIGHT: dict[str, tuple[str, ...]] = {"house": (), "unit": (), "sql": DATABASES}
SCRAM_ITERATIONS_SINCE = 160000

_key = pytest.StashKey[stack.Stack]()


def state_dir() -> Path:
    given = os.environ.get("FARMIQ_STATE_DIR")
    return Path(given) if given else Path(__file__).parents[2] / ".farmiq"


class Engines:
    """The plugin: `environment` is what the stack offers, the same in every worker."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.environment: dict[str, str] = {}

    def start(self) -> None:
        worker = getattr(self._config, "workerinput", None)
        if worker is not None:
            self.environment = dict(worker["farmiq_engines"])
        elif wanted := self._wanted():
            root = state_dir() / "stacks" / f"test-{os.getpid()}"
            started = stack.start(root, engines=wanted, given={}, say=self._say)
            self._config.stash[_key] = started
            for site in ("EDGE", "CLOUD"):
                roles = (f"FARMIQ_{site}_DB_ADMIN_URL", f"FARMIQ_{site}_DB_URL")
                _hurry(*(started.environment[role] for role in roles))
            self.environment = {**started.environment, "FARMIQ_TEST_ROOT": str(root)}

    def stop(self) -> None:
        started = self._config.stash.get(_key, None)
        if started is not None:
            started.stop()
            stack.remove(started.root)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["farmiq_engines"] = self.environment

    def _wanted(self) -> tuple[str, ...]:
        if self._config.option.collectonly:
            return ()
        tests = Path(__file__).parents[1]
        wanted: tuple[str, ...] = ()
        for arg in self._config.args:
            place = Path(arg.partition("::")[0]).absolute()
            folders = [name for name in LIGHT if place.is_relative_to(tests / name)]
            wanted = max(wanted, LIGHT[folders[0]] if folders else ENGINES, key=len)
        return wanted

    def _say(self, line: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(line)


def _hurry(admin_url: str, url: str) -> None:
    """Servers that end with the run and are never killed; rounds that kill have their own.

    Nor is anything tidied: hundreds of databases live for seconds, and one that is analysed
    by itself is no longer as its template. Passwords are hashed once instead of 4096 times: tests
    connect by the ten thousand, and each client pays for the hashing.
    """
    with psycopg.connect(admin_url, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit", "autovacuum"):
            connection.execute(f"alter system set {setting} = off".encode())
        connection.execute("select pg_reload_conf()")
        if connection.info.server_version >= SCRAM_ITERATIONS_SINCE:
            connection.execute("set scram_iterations = 1")
            for role in (urlsplit(admin_url), urlsplit(url)):
                statement = sql.SQL("alter role {} password {}")
                name, password = sql.Identifier(str(role.username)), sql.Literal(role.password)
                connection.execute(statement.format(name, password))
