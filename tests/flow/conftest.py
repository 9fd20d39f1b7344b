"""The whole way as processes of their own: one per service, on engines of the test's own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from farmiq import services, stack
from farmiq.cloud.identity.accounts import add_company, add_user
from farmiq.plumbing import tokens
from farmiq.simulate import check
from farmiq.simulate.check import Findings
from farmiq.simulate.journal import Tally
from farmiq.stack import processes
from tests.conftest import Database
from tests.until import until

TENANT = "hillside"
PASSWORD = "a long enough password"


@dataclass
class Farm:
    """Services by name; each may be killed and started again."""

    environment: dict[str, str]
    folder: Path
    edge_db: Database
    cloud_db: Database
    ports: dict[str, int]
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, name: str) -> None:
        service = next(each for each in services.SERVICES if each.name == name)
        port = {f"FARMIQ_{service.site.upper()}_HTTP_PORT": str(self.ports[name])}
        self.running[name] = self._spawn(name, "run", name, extra=port)

    def kill(self, name: str) -> None:
        """SIGKILL, by pid."""
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait()

    async def until_ready(self, *names: str) -> None:
        for name in names or tuple(self.running):
            await until(partial(self.ready, name), within_s=40)

    def ready(self, name: str) -> bool:
        assert self.running[name].poll() is None, self.log(name)
        try:
            return httpx2.get(f"{self.url(name)}/readyz", timeout=5).status_code == 200
        except httpx2.HTTPError:
            return False

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def simulate(self, *options: str) -> "subprocess.Popen[bytes]":
        """Sensors in the background; their journal is `journal`."""
        journal = ("--journal", str(self.journal), "--tenant", TENANT)
        process = self._spawn("simulator", "simulate", *options, *journal)
        self.running["simulator"] = process
        return process

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    def cli(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "farmiq", *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def edge(self, query: str) -> list[tuple[Any, ...]]:
        return _rows(self.edge_db, query)

    def cloud(self, query: str) -> list[tuple[Any, ...]]:
        return _rows(self.cloud_db, query)

    def sent(self) -> Tally:
        return Tally(self.journal).look()

    def findings(self) -> tuple[Findings, Findings]:
        """The journal against the edge and against the cloud."""
        tally = self.sent()
        sent, unknown = tally.events["sent"], tally.events["sent"] - tally.events["ok"]
        edge = [row[0] for row in self.edge("select id::text from telemetry_raw")]
        cloud = [row[0] for row in self.cloud("select event_id::text from telemetry_readings")]
        return (
            check.compare(sent, edge, unconfirmed=unknown),
            check.compare(sent, cloud, unconfirmed=unknown),
        )

    async def until_quiet(self) -> None:
        """Everything that was acknowledged has reached the cloud's tables."""

        def quiet() -> bool:
            (edge,) = self.edge("select count(*) from telemetry_raw")
            (cloud,) = self.cloud("select count(*) from telemetry_readings")
            return edge[0] >= self.sent().count("ok") and cloud == edge

        await until(quiet, within_s=60)

    def stop(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.terminate()
        for process in self.running.values():
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _spawn(
        self, name: str, *command: str, extra: dict[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        launch = processes.Launch(
            argv=(sys.executable, "-m", "farmiq", *command),
            environment={**os.environ, **self.environment, **(extra or {})},
            folder=self.folder,
            log=self.folder / f"{name}.log",
        )
        return processes.spawn(launch, detach=False)


def _rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.admin_url) as connection:
        return connection.execute(query.encode()).fetchall()


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
    ports = {service.name: free_port() for service in services.SERVICES}
    environment = {
        **broker.environment,
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_EDGE_DB_ADMIN_URL": edge_db.admin_url,
        "FARMIQ_CLOUD_DB_URL": cloud_db.url,
        "FARMIQ_CLOUD_DB_ADMIN_URL": cloud_db.admin_url,
        "FARMIQ_AMQP_URL": vhost,
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{ports['cloud-ingestion']}",
        "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
        "FARMIQ_EDGE_KEYS_FILE": str(tmp_path / "keys.json"),
        # Leases end soon, so that a killed forwarder's events are free again within the test.
        "SYNC_LEASE_SECONDS": "3",
        "SYNC_TIMEOUT_SECONDS": "2",
    }
    farm = Farm(environment, tmp_path, edge_db, cloud_db, ports)
    yield farm
    farm.stop()


@pytest.fixture
async def farm(idle_farm: Farm) -> Farm:
    for service in services.SERVICES:
        idle_farm.start(service.name)
    await idle_farm.until_ready()
    return idle_farm


def log_lines(text: str) -> list[dict[str, Any]]:
    """Every line of a service's log is JSON."""
    return [json.loads(line) for line in text.splitlines()]
