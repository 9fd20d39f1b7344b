"""The demo: engines, services and a simulated farm as processes of their own, and a view of them.

stack --> provision --> farmiq run cloud, farmiq run edge --> farmiq simulate, farmiq stations,
      farmiq simulate cameras --> view or check
"""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2

from farmiq import config, stack
from farmiq.demo import observe, provision
from farmiq.demo.observe import Figures, Observer
from farmiq.demo.provision import Site
from farmiq.plumbing import db
from farmiq.simulate import check
from farmiq.simulate.check import Findings
from farmiq.stack import processes

Say = Callable[[str], None]

READY_S = 60.0
# The demo's days are short, so that one sees them pass.
DAY_S = 600.0
CATCH_UP_S = 90.0
CAMERAS = 6
# Not the one of `farmiq simulate cameras`: that would take the logins of our cameras.
FLEET_SEED = 1
# Each wakes every five minutes, and one of them every minute.
WAKES = ("*/5 * * * *", *(f"{minute}-59/5 * * * *" for minute in range(1, 5)))


class DemoError(Exception):
    """The demo cannot go on; the text says what happened and where to look."""


@dataclass
class Child:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def memory_bytes(self) -> int:
        found = processes.look(self.process.pid)
        return processes.memory_bytes(found) if found else 0


@dataclass
class Farm:
    """The running system."""

    site: Site
    engines: stack.Stack
    children: list[Child]
    observer: Observer
    started_at: float

    def fallen(self) -> Child | None:
        return next((c for c in self.children if c.process.poll() not in (None, 0)), None)

    def simulator(self) -> Child:
        return self.children[-1]

    def stations(self) -> Child:
        return self.children[-2]

    def memory(self) -> dict[str, int]:
        """Bytes of every process of ours, engines included."""
        named = {state.name: state.rss_bytes for state in stack.states(self.engines.root)}
        return {**named, **{child.name: child.memory_bytes for child in self.children}}


@contextlib.asynccontextmanager
async def running(
    engines: stack.Stack, *, barns: int, interval_s: float, seconds: float | None, say: Say
) -> AsyncIterator[Farm]:
    """Everything up on these engines; on leaving, all but them is stopped."""
    started_at = time.monotonic()
    root = engines.root
    site = await provision.provision(root, engines.environment, barns=barns)
    journal = root / "journals" / f"{time.time_ns()}.jsonl"
    children: list[Child] = []
    try:
        children.append(_spawn(root, site, "cloud", "run", "cloud"))
        children.append(_spawn(root, site, "edge", "run", "edge"))
        await _until_ready(children[0], site.console_url)
        await _until_ready(children[1], site.edge_url)
        ready_after_s = time.monotonic() - started_at
        say(f"services        edge and cloud ready in {ready_after_s:.1f} s")
        if seconds is None:
            children.append(_spawn(root, site, "cameras", "simulate", "cameras", *_fleet(root)))
        folder = root / "stations"
        children.append(_spawn(root, site, "stations", "stations", *_herding(folder, seconds)))
        options = ["--barns", str(barns), "--interval", str(interval_s), "--day", str(DAY_S)]
        options += ["--seconds", str(seconds)] if seconds else []
        options += ["--journal", str(journal), "--tenant", provision.TENANT_ID]
        children.append(_spawn(root, site, "simulator", "simulate", *options))
        async with observe.observing(
            engines.environment, edge_url=site.edge_url, journal=journal, stations=folder
        ) as observer:
            yield Farm(site, engines, children, observer, started_at)
    except db.UNAVAILABLE as error:
        raise DemoError(
            f"a database went away ({db.first_line(error)}); see {root / 'logs'}"
        ) from None
    finally:
        say("stopping the simulators, the edge and the cloud")
        # The senders first, so that they find somebody to say goodbye to.
        for child in reversed(children):
            child.process.terminate()
        for child in reversed(children):
            _await_end(child)
        say("stopping the engines")


async def smoke(engines: stack.Stack, *, seconds: float, say: Say) -> tuple[bool, str]:
    """Run a farm for a while, then compare what was sent with both ends; (good, summary line)."""
    async with running(engines, barns=4, interval_s=1.0, seconds=seconds, say=say) as farm:
        memory = await _until_simulated(farm, seconds, say)
        for name, size in memory.items():
            say(f"memory        {name:<16} {size / 2**20:6.0f} MB")
        figures = await _until_caught_up(farm, say)
        tally = farm.observer.tally
        sent, unknown = tally.contents, tally.unconfirmed
        edge = check.compare(sent, await farm.observer.at_the_edge(), unconfirmed=unknown)
        cloud = check.compare(sent, await farm.observer.in_the_cloud(), unconfirmed=unknown)
        weighed = await farm.observer.weighings()
    good = edge.clean and cloud.clean and _counts_agree(figures) and figures.sent > 0
    good = good and all(each.clean and each.stored for each in weighed)
    return good, (
        f"smoke: sent {figures.sent}, stored at the edge {edge.stored}, in the cloud "
        f"{cloud.stored} ({figures.cloud_counted} readings counted); "
        f"lost {len(edge.lost) + len(cloud.lost)}, "
        f"twice {len(edge.twice) + len(cloud.twice) + _overcounted(figures)}, "
        f"invented {len(edge.invented) + len(cloud.invented)}, "
        f"changed {len(edge.changed) + len(cloud.changed)}; "
        f"{figures.repeats_absorbed} repeats absorbed; {_weighings(figures, *weighed)}"
    )


def _weighings(figures: Figures, edge: Findings, cloud: Findings) -> str:
    both = (edge, cloud)
    return (
        f"weighings: {edge.sent} due, {edge.stored} at the edge, {cloud.stored} in the cloud, "
        f"{figures.pictures_edge} and {figures.pictures_cloud} pictures; "
        f"lost {sum(len(each.lost) for each in both)}, "
        f"twice {sum(len(each.twice) for each in both)}, "
        f"invented {sum(len(each.invented) for each in both)}, "
        f"changed {sum(len(each.changed) for each in both)}"
    )


def _herding(folder: Path, seconds: float | None) -> list[str]:
    """A smoke check wants many animals in its minute, and power cuts; a demo is watched."""
    options = ["--dir", str(folder), "--day", str(DAY_S)]
    if seconds is None:
        return [*options, "--gap", "8", "--stands", "6"]
    return [*options, "--seconds", str(seconds), "--gap", "2", "--stands", "5", "--cuts"]


def _fleet(root: Path) -> list[str]:
    """Battery cameras at sites in three zones; they wake when they are told to, by their schedules.

    Each run has a folder of its own: numbers on the cards begin at 1 again.
    """
    folder = root / "cameras" / str(time.time_ns())
    options = ["--count", str(CAMERAS), "--seed", str(FLEET_SEED)]
    options += ["--register", provision.TENANT_ID, "--dir", str(folder)]
    options += [word for each in WAKES for word in ("--schedule", each)]
    faults = ["--loss", "0.1", "--duplicates", "0.05", "--reorder", "0.2", "--deaths", "0.05"]
    return [*options, *faults, "--weak", "0.2", "--every", "0", "--spread", "20"]


def _overcounted(figures: Figures) -> int:
    """Readings counted into the page's totals more often than they were stored."""
    return max(0, figures.cloud_counted - figures.cloud_stored)


def _counts_agree(figures: Figures) -> bool:
    return (
        figures.outbox_delivered == figures.cloud_accepted
        and figures.edge_readings == figures.cloud_stored == figures.cloud_counted
    )


async def _until_simulated(farm: Farm, seconds: float, say: Say) -> dict[str, int]:
    """Wait for the simulator's end; returns the memory of each process while it was at work."""
    memory: dict[str, int] = {}
    simulator, herds = farm.simulator().process, farm.stations().process
    deadline = time.monotonic() + seconds + 90
    while None in (simulator.poll(), herds.poll()) and time.monotonic() < deadline:
        _fail_if_fallen(farm)
        figures = await farm.observer.look()
        say(
            f"running       sent {figures.sent}, stored at the edge {figures.edge_stored}, "
            f"in the cloud {figures.cloud_stored}; weighed {figures.weighed_edge}"
        )
        memory = farm.memory()
        await asyncio.sleep(10 if seconds > 20 else 2)  # noqa: PLR2004
    for child in (farm.simulator(), farm.stations()):
        if child.process.poll() != 0:
            raise DemoError(f"{child.name} did not end well; see {child.log}")
    return memory


async def _until_caught_up(farm: Farm, say: Say) -> Figures:
    """Everything confirmed has arrived, or time is over: then the comparison will say so."""
    deadline = time.monotonic() + CATCH_UP_S
    figures = await farm.observer.look()
    while time.monotonic() < deadline:
        if _settled(figures) and all(each.clean for each in await farm.observer.weighings()):
            break
        _fail_if_fallen(farm)
        await asyncio.sleep(0.5)
        figures = await farm.observer.look()
    say(
        f"caught up     {figures.cloud_stored} readings and {figures.weighed_cloud} weighings "
        "in the cloud"
    )
    return figures


def _settled(figures: Figures) -> bool:
    return (
        figures.edge_stored >= figures.confirmed
        and figures.outbox_waiting == 0
        and figures.queue_waiting == 0
        and figures.outbox_delivered == figures.cloud_accepted
        and figures.cloud_stored >= figures.edge_readings
    )


def _fail_if_fallen(farm: Farm) -> None:
    fallen = farm.fallen()
    if fallen:
        raise DemoError(f"{fallen.name} ended by itself; see {fallen.log}")


async def _until_ready(child: Child, url: str) -> None:
    """The process answers /readyz with yes; a process that ended is not waited for."""
    deadline = time.monotonic() + READY_S
    problem = "no answer"
    async with httpx2.AsyncClient(timeout=5) as client:
        while time.monotonic() < deadline:
            if child.process.poll() is not None:
                raise DemoError(f"{child.name} did not start; see {child.log}")
            with contextlib.suppress(httpx2.HTTPError):
                answer = await client.get(f"{url}/readyz")
                if answer.status_code == 200:  # noqa: PLR2004
                    return
                problem = answer.text
            await asyncio.sleep(0.1)
    raise DemoError(f"{child.name} is not ready after {READY_S:.0f} s: {problem}; see {child.log}")


def _spawn(root: Path, site: Site, name: str, *command: str) -> Child:
    log = root / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    launch = processes.Launch(
        argv=(sys.executable, "-m", "farmiq", *command),
        environment=config.environment(over=site.environment),
        folder=Path.cwd(),
        log=log,
    )
    return Child(name, processes.spawn(launch, detach=False), log)


def _await_end(child: Child) -> None:
    try:
        child.process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        child.process.kill()
        child.process.wait()


Show = Callable[[Farm], Awaitable[None]]


async def demo(
    engines: stack.Stack, *, barns: int, interval_s: float, say: Say, show: Show
) -> None:
    """Run until interrupted; `show` is the live view."""
    async with running(engines, barns=barns, interval_s=interval_s, seconds=None, say=say) as farm:
        await show(farm)
