"""The rehearsal of an upgrade: the last release and the working tree side by side, under load.

Every site is one process; `N-1` is the last release in its own environment, `N` the working tree.
"""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farmiq.lab.simulate.check import Findings
from tests.support import release
from tests.support.engines import state_dir
from tests.support.farm import Farm
from tests.support.until import until
from tests.upgrade.balancer import Balancer

OLD, NEW = "N-1", "N"
LOAD = ("--interval", "0.25", "--steady", "--barns")


@dataclass
class Rehearsal:
    """A farm whose sites run as one version or the other, or as both."""

    farm: Farm
    balancers: dict[str, Balancer]
    tree: Path
    barns: int = 3
    # What was done, how long it took and how many readings came meanwhile.
    report: list[dict[str, Any]] = field(default_factory=list)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        began, before = time.monotonic(), self.stored()
        yield
        seconds = round(time.monotonic() - began, 1)
        self.report.append({"step": what, "seconds": seconds, "readings": self.stored() - before})

    def stored(self) -> int:
        ((count,),) = self.farm.cloud("select count(*)::int from telemetry_readings")
        return int(count)

    async def flows(self, count: int, within_s: float = 120) -> None:
        """Devices have sent so many more, and the cloud has stored as many."""
        sent, stored = self.farm.sent().count("ok"), self.stored()
        await until(
            lambda: (
                self.farm.sent().count("ok") >= sent + count and self.stored() >= stored + count
            ),
            within_s=within_s,
        )

    # --- versions

    def called(self, site: str, version: str) -> str:
        return f"{site} {version}"

    async def start(self, site: str, version: str) -> None:
        name = self.called(site, version)
        self.farm.start(site, called=name, tree=self.tree if version == OLD else None)
        await self.farm.until_ready(name)

    async def stop(self, site: str, version: str) -> None:
        """As a service manager does: SIGTERM, and it ends in good order."""
        name = self.called(site, version)
        await asyncio.to_thread(self.farm.stop_one, name)
        assert self.farm.running[name].returncode == 0, self.farm.log(name)[-3000:]

    def lead_to(self, site: str, version: str) -> None:
        self.balancers[site].lead_to(self.farm.ports[self.called(site, version)])

    async def replace(self, site: str, *, before: str, after: str) -> None:
        """One beside the other, then the first is stopped."""
        await self.start(site, after)
        self.lead_to(site, after)
        await self.stop(site, before)

    # --- devices

    @contextmanager
    def devices(self, version: str) -> Iterator[None]:
        """Sensors of that version send all the while."""
        process = self.farm.simulate(
            *LOAD, str(self.barns), tree=self.tree if version == OLD else None
        )
        yield
        assert process.poll() is None, self.farm.log("simulator")[-3000:]
        process.terminate()
        process.wait(timeout=90)

    # --- commands

    async def command(self, *words: str, version: str = NEW) -> "subprocess.CompletedProcess[str]":
        if version == NEW:
            return await asyncio.to_thread(self.farm.cli, *words)
        return await asyncio.to_thread(
            subprocess.run,
            [release.python(self.tree), "-m", "farmiq", *words],
            env={**os.environ, **self.farm.environment},
            cwd=self.farm.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    async def do(self, *words: str, version: str = NEW) -> str:
        done = await self.command(*words, version=version)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    async def check(self, site: str, *options: str) -> tuple[int, dict[str, Any]]:
        done = await self.command("upgrade", "check", site, "--json", *options)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)["sites"][site]

    # --- the account

    async def account(self) -> tuple[Findings, ...]:
        """All that was acknowledged is at both sites, once; nothing waits or was set aside."""
        await self.farm.until_quiet()
        left = "select event_type, status, last_error_code, last_error_message from sync_outbox "
        await until(lambda: not self.farm.edge(f"{left} where status <> 'acked' limit 5"))
        found = self.farm.findings()
        for each in found:
            assert (each.lost, each.twice, each.invented, each.changed) == ((), (), (), ())
        assert self.farm.doubled() == ()
        assert self.farm.edge("select count(*)::int from quarantine") == [(0,)]
        return found

    def summary(self) -> dict[str, Any]:
        edge, cloud = self.farm.findings()
        return {
            "events": edge.sent,
            "lost": len({*edge.lost, *cloud.lost}),
            "twice": len({*edge.twice, *cloud.twice, *self.farm.doubled()}),
            "asked": sum(each.asked for each in self.balancers.values()),
            "unanswered": [why for each in self.balancers.values() for why in each.failed],
            "steps": self.report,
        }

    def write_report(self, name: str) -> dict[str, Any]:
        """For people, and as the test's result."""
        summary = self.summary()
        file = state_dir() / f"{name}.json"
        file.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        return summary
