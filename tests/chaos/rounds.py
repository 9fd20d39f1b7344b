"""One fault round: load, a fault, recovery, and the account of it.

A round counts only if there was something to lose (events on the way when the fault came) and if
somebody really had to deliver again; otherwise it would prove nothing.
"""

import asyncio
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.samples import Sample

from farmiq.lab import stack
from farmiq.lab.simulate.check import Findings
from farmiq.lab.stack import processes
from farmiq.lab.stack.processes import Process
from tests.support.farm import STARTED, Farm
from tests.support.until import until

LOAD = ("--barns", "8", "--interval", "0.1", "--steady", "--seconds")
UNRESOLVED = 100
TRIES = 3
# The longest that a victim runs between two looks at its hands.
STEP_S = 0.02

ALL = tuple(each.name for each in STARTED)
# Not needed by what devices of a farm send: these run only in the round that is about them.
ASIDE = ("edge-weighvision-", "cloud-camera-", "cloud-console")

# What a service that was stopped has in hand, by the site that knows: of whoever is asked again for
# what it did not confirm, its open transactions. Nothing is known while the database still works at
# what it was told; a backend that waits for its client, or for another one's lock, stays as it is.
_KNOWN = """
    select case when bool_or(state = 'active' and coalesce(wait_event_type, '')
        not in ('Client', 'Lock')) then 0 else {} end::int
    from pg_stat_activity where split_part(application_name, ' ', 1) = '{{}}'
"""
_OPEN = _KNOWN.format("count(xact_start)")
_LEASED = _KNOWN.format("(select count(*) from sync_outbox where claimed_by is not null)")
IN_HAND = {
    "edge-ingress-gateway": ("edge", _OPEN),
    "edge-sync-forwarder": ("edge", _LEASED),
    "cloud-ingestion": ("cloud", _OPEN),
    "cloud-telemetry-service": ("cloud", _OPEN),
}

# What the services themselves count when something comes again.
REDELIVERIES: tuple[tuple[str, dict[str, str]], ...] = (
    ("farmiq_ingress_resumed_total", {}),
    ("farmiq_ingress_retried_total", {}),
    ("farmiq_ingress_messages_total", {"outcome": "repeated"}),
    ("farmiq_sync_reclaimed_total", {}),
    ("farmiq_sync_events_total", {"outcome": "again"}),
    ("farmiq_ingestion_events_total", {"outcome": "deduped"}),
    ("farmiq_bus_redelivered_total", {}),
    ("farmiq_bus_retried_total", {}),
)


@dataclass(frozen=True, slots=True)
class Result:
    kind: str
    events: int
    unresolved: int
    redelivered: int
    recovery_s: float
    edge: Findings
    cloud: Findings
    doubled: tuple[str, ...]
    least: int = UNRESOLVED

    def check(self) -> None:
        assert self.doubled == ()
        for found in (self.edge, self.cloud):
            assert (found.lost, found.twice, found.invented, found.changed) == ((), (), (), ())

    @property
    def proves_something(self) -> bool:
        return self.unresolved >= self.least and self.redelivered >= 1

    def summary(self) -> dict[str, object]:
        """For the line that `make test` prints of each kind of fault."""
        return {
            "kind": self.kind,
            "events": self.events,
            "lost": len({*self.edge.lost, *self.cloud.lost}),
            "twice": len({*self.edge.twice, *self.cloud.twice, *self.doubled}),
            "recovery_s": self.recovery_s,
        }


def grown(before: Mapping[int, int], after: Mapping[int, int]) -> int:
    """How much counters grew; one of a process that was started since has grown from nothing."""
    return sum(count - before.get(process, 0) for process, count in after.items())


@dataclass
class Battered:
    """A farm and its engines, with the verbs of a fault round."""

    farm: Farm
    engines: stack.Stack
    # What runs in a round.
    services: tuple[str, ...] = tuple(name for name in ALL if not name.startswith(ASIDE))
    # Whether the last round left everything running, as all but a failed one do.
    whole: bool = False

    async def counted_round(self, kind: str, **how: Any) -> Result:
        """Rounds until one counts: what was in hand may have come through all the same."""
        for _ in range(TRIES):
            result = await self.round(kind, **how)
            result.check()
            if result.proves_something:
                return result
        raise AssertionError(f"{TRIES} rounds proved nothing: {result}")

    async def round(
        self,
        kind: str,
        *,
        fault: Callable[[], Awaitable[None]],
        repair: Callable[[], Awaitable[None]],
        seconds: float = 1.5,
        without: str | None = None,
        busy: str | None = None,
        least: int = UNRESOLVED,
    ) -> Result:
        """Load, `fault`, `repair`, quiet.

        `without` is a service that is stopped until the fault starts it. `busy` is one that is
        frozen with its hands full, at any moment of its work, until the fault has come. A round in
        which fewer than `least` are on the way then does not count.
        """
        await self._fresh(without=without)
        self.whole = False
        came_again = delivered_again(self.farm)
        held = processes.look(self.farm.running[busy].pid) if busy else None
        if held is not None:
            processes.send(held, signal.SIGSTOP)
        try:
            simulator = self.farm.simulate(*LOAD, str(seconds))
            await until(lambda: self._on_the_way() >= 3 * UNRESOLVED)
            if busy is not None and held is not None:
                await self._seize(busy, held)
            # Counted before the fault where the fault may take the table away that we count in.
            unresolved = self._on_the_way() if held is not None else 0
            await fault()
        finally:
            if held is not None:
                processes.send(held, signal.SIGCONT)
        unresolved = unresolved or self._on_the_way()
        before = set(self.farm.sent().events["ok"])
        began = time.monotonic()
        await repair()
        await until(lambda: before <= self.farm.in_the_cloud(), within_s=90)
        recovery_s = time.monotonic() - began
        assert _ended(simulator) == 0, self.farm.log("simulator")
        await self.farm.until_ready(*self.services)
        await self.farm.until_quiet()
        self.whole = True
        edge, cloud = self.farm.findings()
        redelivered = grown(came_again, delivered_again(self.farm))
        found = (edge, cloud, self.farm.doubled(), least)
        return Result(kind, edge.sent, unresolved, redelivered, recovery_s, *found)

    async def _seize(self, service: str, held: Process) -> None:
        """Given up when so little is left on the way that the round cannot count any more."""
        run_s = random.random() / 20
        while True:
            processes.send(held, signal.SIGCONT)
            await asyncio.sleep(run_s)
            processes.send(held, signal.SIGSTOP)
            await until(lambda: _is_stopped(held))
            if self._in_hand(service) or self._on_the_way() < UNRESOLVED:
                return
            run_s = random.random() * STEP_S

    def _in_hand(self, service: str) -> int:
        site, query = IN_HAND[service]
        ask = self.farm.edge if site == "edge" else self.farm.cloud
        ((count,),) = ask(query.format(service))
        return int(count)

    async def _fresh(self, *, without: str | None) -> None:
        """All engines and services run, from empty tables and a new journal."""
        for state in () if self.whole else stack.states(self.engines.root):
            if not state.healthy:
                self.engines.kill(state.name)
                self.engines.restart(state.name)
        for name in self.services:
            started = self.farm.running.get(name)
            if started is None or started.poll() is not None:
                self.farm.start(name)
        await self.farm.until_ready(*self.services)
        if without is not None:
            self.farm.stop_one(without)
        self.farm.begin_journal()
        self.farm.empty_tables()

    def _on_the_way(self) -> int:
        return len(self.farm.sent().events["sent"] - self.farm.in_the_cloud())


def delivered_again(farm: Farm) -> Counter[int]:
    """How often something came again, by the process that saw it."""
    names = tuple(name for name, _ in REDELIVERIES)
    return Counter(
        {
            process: sum(int(each.value) for each in samples if _came_again(each))
            for process, samples in farm.samples_by_process(names).items()
        }
    )


def _is_stopped(process: Process) -> bool:
    return processes.parse_stat(Path(f"/proc/{process.pid}/stat").read_text()).state == "T"


def _came_again(sample: Sample) -> bool:
    return any(
        sample.name == name and labels.items() <= sample.labels.items()
        for name, labels in REDELIVERIES
    )


def _ended(process: "subprocess.Popen[bytes]") -> int:
    return process.wait(timeout=90)
