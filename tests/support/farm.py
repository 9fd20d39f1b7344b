"""A farm under test: every service a process of its own, killed and started at will."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from farmiq import services
from farmiq.cloud import bus
from farmiq.lab.simulate import check
from farmiq.lab.simulate.check import Findings
from farmiq.lab.simulate.journal import Tally
from farmiq.lab.stack import processes
from tests.conftest import Database
from tests.support import preloaded, release
from tests.support.until import until

# Those on a reading's way and beside it. The consumers of other families have tests of their own;
# nine more processes would only slow these down.
ELSEWHERE = {work.service for work in bus.WORKS} - {bus.TELEMETRY.service}
ELSEWHERE |= {"cloud-deadletter-service", "cloud-edges-registry", "edge-media-store"}
ELSEWHERE |= {"edge-alert-rules", "edge-console", "cloud-reports-service"}
ELSEWHERE |= {"edge-vision-inference"}
ELSEWHERE |= {"cloud-camera-calendar", "cloud-farms-registry", "cloud-notification-service"}
STARTED = tuple(each for each in services.SERVICES if each.name not in ELSEWHERE)

Connection = psycopg.Connection[tuple[Any, ...]]

TENANT = "hillside"
PASSWORD = "a long enough password"

# One for all: to make a client is dearer than to ask with it. No connection outlives its answer,
# for services are killed.
ask = httpx2.Client(timeout=20, limits=httpx2.Limits(max_keepalive_connections=0))


@dataclass
class Farm:
    """Services by name; each may be killed and started again."""

    environment: dict[str, str]
    folder: Path
    edge_db: Database
    cloud_db: Database
    ports: dict[str, int]
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    # One for all questions to a database: to connect costs both sides more than to ask.
    asking: dict[str, Connection] = field(default_factory=dict)
    # Of the journal, as far as it was read.
    tally: Tally | None = None

    def start(
        self, name: str, *, crash_at: str = "", called: str = "", tree: Path | None = None
    ) -> None:
        """Start a service, or a whole site; `called` is what a second one is known by here.

        `tree` is where the code of another version is (release.py).
        """
        extra = {
            f"FARMIQ_{_site(name).upper()}_HTTP_PORT": str(self.ports[called or name]),
            "FARMIQ_CRASH_AT": crash_at,
        }
        self.running[called or name] = self._spawn(
            called or name, "run", name, extra=extra, tree=tree
        )

    def kill(self, name: str) -> None:
        """SIGKILL, by pid."""
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait()

    async def until_ready(self, *names: str) -> None:
        for name in names or tuple(self.running):
            await until(partial(self.ready, name), within_s=120)

    def ready(self, name: str) -> bool:
        assert self.running[name].poll() is None, self.log(name)
        try:
            return ask.get(f"{self.url(name)}/readyz").status_code == 200
        except httpx2.HTTPError:
            return False

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def start_command(
        self, name: str, *command: str, tree: Path | None = None
    ) -> "subprocess.Popen[bytes]":
        """A command in the background, known by `name` here."""
        self.running[name] = self._spawn(name, *command, tree=tree)
        return self.running[name]

    def simulate(self, *options: str, tree: Path | None = None) -> "subprocess.Popen[bytes]":
        """Sensors in the background; their journal is `journal`."""
        journal = ("--journal", str(self.journal), "--tenant", TENANT)
        return self.start_command("simulator", "simulate", *options, *journal, tree=tree)

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    def cli(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return preloaded.command(*arguments, environment=self.environment)

    def edge(self, query: str) -> list[tuple[Any, ...]]:
        return self._rows(self.edge_db.admin_url, query)

    def edge_do(self, statement: str) -> None:
        """Something that a person or a service of another test would do."""
        with psycopg.connect(self.edge_db.admin_url) as connection:
            connection.execute(statement.encode())

    def cloud(self, query: str) -> list[tuple[Any, ...]]:
        return self._rows(self.cloud_db.admin_url, query)

    def sent(self) -> Tally:
        self.tally = self.tally or Tally(self.journal)
        return self.tally.look()

    def begin_journal(self) -> None:
        """Forget what was sent so far."""
        self.journal.unlink(missing_ok=True)
        self.tally = None

    def findings(self) -> tuple[Findings, ...]:
        """The journal against the edge and against the cloud."""
        tally = self.sent()
        edge = self.edge(_READINGS.format("id", "telemetry_raw"))
        cloud = self.cloud(_READINGS.format("event_id", "telemetry_readings"))
        return tuple(
            check.compare(tally.contents, [*_contents(rows), *told], unconfirmed=tally.unconfirmed)
            for rows, told in ((edge, self._told("true")), (cloud, self._told(_DELIVERED)))
        )

    def _told(self, which: str) -> list[tuple[str, str]]:
        """Feed and barn records, which have no table in the cloud yet: there, what it confirmed."""
        intakes = self.edge(_INTAKES.format(which))
        records = self.edge(_RECORDS.format(which))
        return [
            *(
                (row[0], check.intake(**dict(zip(_OF_INTAKE, row[1:], strict=True))))
                for row in intakes
            ),
            *(
                (row[0], check.record(**dict(zip(_OF_RECORD, row[1:], strict=True))))
                for row in records
            ),
        ]

    def in_the_cloud(self) -> set[str]:
        """Ids of readings that are stored and of other events that were accepted."""
        stored = self.cloud("select event_id::text from telemetry_readings")
        taken = self.cloud(
            "select event_id::text from ingestion_dedupe where event_type <> 'telemetry.ingested'"
        )
        return {row[0] for row in (*stored, *taken)}

    def doubled(self) -> tuple[str, ...]:
        """What keys cannot show: sums of the cloud, and steps on the way, that do not agree."""
        series = self.cloud("select device_id, metric_type from telemetry_readings")
        counts = self.cloud("select device_id, metric_type, reading_count from telemetry_latest")
        found = check.miscounted(series, {(row[0], row[1]): row[2] for row in counts})
        kept = sorted(
            self.edge(
                "select id from telemetry_raw union all select intake_id from feed_intakes "
                "union all select event_id from barn_records"
            )
        )
        # The doors know statuses of devices too, and earlier rounds: only this journal's count.
        sent = self.sent().contents
        at_the_edge = self.edge("select event_id from ingress_dedupe")
        in_the_cloud = self.cloud(_ACCEPTED)
        for where, ids in {
            "sync_outbox": self.edge(_OWED),
            "ingress_dedupe": [row for row in at_the_edge if str(row[0]) in sent],
            "ingestion_dedupe": [row for row in in_the_cloud if str(row[0]) in sent],
        }.items():
            if sorted(ids) != kept:
                found += (f"{where}: {len(ids)} ids, kept at the edge: {len(kept)}",)
        return found

    async def until_quiet(self) -> None:
        """Everything that was acknowledged has reached the cloud's tables."""

        def quiet() -> bool:
            (edge,) = self.edge("select count(*) from telemetry_raw")
            (cloud,) = self.cloud("select count(*) from telemetry_readings")
            told, delivered = len(self._told("true")), len(self._told(_DELIVERED))
            arrived = edge[0] + told >= self.sent().count("ok")
            return arrived and cloud == edge and told == delivered

        await until(quiet, within_s=120)

    def empty_tables(self) -> None:
        """As on the first day; the services go on.

        What was taken before stays known at both doors: a broker may still bring it once more.
        """
        _empty(self.edge_db, "telemetry_raw, sync_outbox, quarantine")
        _empty(self.edge_db, "telemetry_agg, telemetry_dirty")
        _empty(self.edge_db, "telemetry_latest")
        _empty(self.edge_db, "sync_state, feed_intakes, barn_records, silo_states")
        _empty(self.edge_db, "device_seq, alerts, loss_ledger")
        _empty(self.cloud_db, "telemetry_readings, telemetry_latest")

    def stop_one(self, name: str) -> None:
        self.running[name].terminate()
        self.running[name].wait(timeout=60)

    def samples_by_process(self, names: tuple[str, ...]) -> dict[int, list[Sample]]:
        """What each process counts of these, by its pid: one started again counts from nothing.

        Only their lines are read: all of them take longer than the round that asks.
        """
        return {
            process.pid: [
                sample
                for line in ask.get(f"{self.url(name)}/metrics").text.splitlines()
                if line.startswith(names)
                for family in text_string_to_metric_families(line)
                for sample in family.samples
            ]
            for name, process in self.running.items()
            if name in self.ports and process.poll() is None
        }

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
        for connection in self.asking.values():
            connection.close()

    def _rows(self, url: str, query: str) -> list[tuple[Any, ...]]:
        """Asked once more of a server that was killed since it was asked last."""
        if url in self.asking:
            with contextlib.suppress(psycopg.OperationalError):
                return self.asking[url].execute(query.encode()).fetchall()
            self.asking.pop(url).close()
        self.asking[url] = psycopg.connect(url, autocommit=True)
        return self.asking[url].execute(query.encode()).fetchall()

    def _spawn(
        self,
        name: str,
        *command: str,
        extra: dict[str, str] | None = None,
        tree: Path | None = None,
    ) -> "subprocess.Popen[bytes]":
        launch = processes.Launch(
            argv=(release.python(tree) if tree else sys.executable, "-m", "farmiq", *command),
            environment={**os.environ, **self.environment, **(extra or {})},
            folder=self.folder,
            log=self.folder / f"{name}.log",
        )
        return processes.spawn(launch, detach=False) if tree else preloaded.spawn(launch)


_READINGS = "select {}::text, device_id, metric_type, metric_value, unit, occurred_at from {}"
_COUNTED = "('telemetry.ingested', 'feed.intake.recorded', 'barn.record.created')"
_OWED = f"select id from sync_outbox where event_type in {_COUNTED}"  # noqa: S608
_ACCEPTED = f"select event_id from ingestion_dedupe where event_type in {_COUNTED}"  # noqa: S608
_INTAKES = """
    select intake_id::text, i.device_id, source, feed_lot_id, quantity_kg, i.occurred_at
    from feed_intakes i left join sync_outbox o on o.id = intake_id
    where parent_event_id is null and {}
"""
_RECORDS = """
    select r.event_id::text, r.device_id, record_id, record_type, value_number, recorded_at
    from barn_records r left join sync_outbox o on o.id = r.event_id where {}
"""
_DELIVERED = "o.status = 'acked'"
_OF_INTAKE = ("device_id", "source", "feed_lot_id", "quantity_kg", "occurred_at")
_OF_RECORD = ("device_id", "record_id", "record_type", "value", "recorded_at")
_NAMES = ("device_id", "metric_type", "metric_value", "unit", "occurred_at")


def _site(name: str) -> str:
    return services.named(name)[0].site


def _contents(rows: list[tuple[Any, ...]]) -> list[tuple[str, str]]:
    return [(row[0], check.content(**dict(zip(_NAMES, row[1:], strict=True)))) for row in rows]


def _empty(database: Database, tables: str) -> None:
    """A chore of a service may hold one of them and wait for another: then once more."""
    while True:
        with (
            contextlib.suppress(psycopg.errors.DeadlockDetected),
            psycopg.connect(database.admin_url) as connection,
        ):
            connection.execute(f"truncate {tables}".encode())
            return


def log_lines(text: str) -> list[dict[str, Any]]:
    """Every line of a service's log is JSON."""
    return [json.loads(line) for line in text.splitlines()]
