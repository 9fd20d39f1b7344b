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
from datetime import UTC, datetime
from pathlib import Path

import httpx2

from farmiq import config
from farmiq.lab import stack
from farmiq.lab.demo import provision
from farmiq.lab.demo.history import History
from farmiq.lab.demo.observe import CloudFigures, EdgeFigures, Figures, Observer, Totals
from farmiq.lab.demo.provision import Site
from farmiq.lab.simulate import check
from farmiq.lab.simulate.check import Findings
from farmiq.lab.simulate.link import Link, linked
from farmiq.lab.stack import processes
from farmiq.plumbing import db

Say = Callable[[str], None]

READY_S = 60.0
# The demo's days are short, so that one sees them pass.
DAY_S = 600.0
CATCH_UP_S = 90.0
# Of the five days before the first start: enough for each camera to learn from.
WEIGHED_BEFORE = 40
CAMERAS = 6
# Not the one of `farmiq simulate cameras`: that would take the logins of our cameras.
FLEET_SEED = 1
# Each wakes every five minutes, and one of them every minute.
WAKES = ("*/5 * * * *", *(f"{minute}-59/5 * * * *" for minute in range(1, 5)))


class DemoError(Exception):
    """The demo cannot go on; the text says what happened and where to look."""


@dataclass
class Child:
    """A process of ours; `quick_deaths` counts how often in a row it ended right after a start."""

    name: str
    launch: processes.Launch
    process: subprocess.Popen[bytes]
    ready_url: str | None = None
    started_at: float = 0.0
    quick_deaths: int = 0

    @property
    def log(self) -> Path:
        return self.launch.log

    @property
    def memory_bytes(self) -> int:
        process = processes.look(self.process.pid)
        return processes.memory_bytes(process) if process else 0

    def start_again(self) -> None:
        self.process = processes.spawn(self.launch, detach=False)
        self.started_at = time.monotonic()


@dataclass
class Farm:
    """The running system."""

    site: Site
    engines: stack.Stack
    children: dict[str, Child]
    observer: Observer
    link: Link
    started_at: float
    history: History | None = None

    def fallen(self) -> Child | None:
        ended = (c for c in self.children.values() if c.process.poll() not in (None, 0))
        return next(ended, None)

    def memory(self) -> dict[str, int]:
        """Bytes of every process of ours, engines included."""
        named = {state.name: state.rss_bytes for state in stack.states(self.engines.root)}
        return {**named, **{name: child.memory_bytes for name, child in self.children.items()}}


@contextlib.asynccontextmanager
async def running(
    engines: stack.Stack, *, barns: int, interval_s: float, seconds: float | None, say: Say
) -> AsyncIterator[Farm]:
    """Everything up on these engines; on leaving, all but them is stopped."""
    started_at = time.monotonic()
    root = engines.root
    site = await provision.provision(root, engines.environment, barns=barns)
    journal = root / "journals" / f"{time.time_ns()}.jsonl"
    fleet, stations = root / "cameras" / str(time.time_ns()), root / "stations"
    children: dict[str, Child] = {}

    def spawn(name: str, *command: str, **settings: str) -> Child:
        children[name] = _spawn(root, site, name, *command, **settings)
        return children[name]

    try:
        async with linked("127.0.0.1", int(site.environment["FARMIQ_CLOUD_HTTP_PORT"])) as link:
            try:
                cloud = spawn("cloud", "run", "cloud")
                # The edge reaches the cloud through a link that can be cut.
                link_url = f"http://127.0.0.1:{link.port_here}"
                edge = spawn("edge", "run", "edge", FARMIQ_CLOUD_URL=link_url)
                cloud.ready_url, edge.ready_url = site.console_url, site.edge_url
                for child in (cloud, edge):
                    await until_ready(child)
                say(f"services        ready in {time.monotonic() - started_at:.1f} s")
                since = datetime.now(UTC)
                if seconds is None:
                    spawn("cameras", "simulate", "cameras", *_fleet(fleet))
                life = ("--life", str(root / provision.LIFE_FILE))
                spawn("stations", "stations", *_herding(stations, seconds), *life)
                options = ["--barns", str(barns), "--interval", str(interval_s)]
                options += ["--seconds", str(seconds)] if seconds else []
                options += ["--day", str(DAY_S), "--tenant", provision.TENANT_ID]
                spawn("simulator", "simulate", *options, *life, "--journal", str(journal))
                observer = Observer(
                    engines.environment,
                    edge_url=site.edge_url,
                    journal=journal,
                    stations=stations,
                    captures=fleet / "captures.jsonl",
                    since=since,
                )
                async with contextlib.aclosing(observer):
                    to_cloud = {**site.environment, "FARMIQ_CLOUD_URL": link_url}
                    history = History(root, to_cloud, observer)
                    yield Farm(site, engines, children, observer, link, started_at, history)
            finally:
                # In a thread: the link goes on meanwhile, and the edge can say goodbye.
                link.heal()
                await asyncio.to_thread(_stop, children, say)
    except db.UNAVAILABLE as error:
        raise DemoError(
            f"a database went away ({db.first_line(error)}); see {root / 'logs'}"
        ) from None


def _stop(children: dict[str, Child], say: Say) -> None:
    """End what still runs; the senders first, so that they can disconnect."""
    left = [child for child in reversed(children.values()) if child.process.poll() is None]
    if left:
        say(f"stopping {', '.join(child.name for child in left)}")
    for child in left:
        child.process.terminate()
    for child in left:
        _await_end(child)


async def smoke(engines: stack.Stack, *, seconds: float, say: Say) -> tuple[bool, str]:
    """Run a farm for a while, then compare what was sent with both ends; (good, summary line)."""
    async with running(engines, barns=4, interval_s=1.0, seconds=seconds, say=say) as farm:
        memory = await _until_simulated(farm, seconds, say)
        for name, size in memory.items():
            say(f"memory        {name:<16} {size / 2**20:6.0f} MB")
        figures, totals = await _until_caught_up(farm, say)
        tally = farm.observer.tally
        sent, unknown = tally.contents, tally.unconfirmed
        edge = check.compare(sent, await farm.observer.at_the_edge(), unconfirmed=unknown)
        cloud = check.compare(sent, await farm.observer.in_the_cloud(), unconfirmed=unknown)
        weighed = await farm.observer.weighings()
    good = edge.clean and cloud.clean and _counts_agree(totals) and figures.sent > 0
    good = good and all(findings.clean and findings.stored for findings in weighed)
    return good, (
        f"smoke: sent {figures.sent}, stored at the edge {edge.stored}, in the cloud "
        f"{cloud.stored} ({totals.cloud_counted} readings counted); "
        f"lost {len(edge.lost) + len(cloud.lost)}, "
        f"twice {len(edge.twice) + len(cloud.twice) + _overcounted(totals)}, "
        f"invented {len(edge.invented) + len(cloud.invented)}, "
        f"changed {len(edge.changed) + len(cloud.changed)}; "
        f"{figures.repeats_absorbed} repeats absorbed; {_weighings(figures, *weighed)}"
    )


def _weighings(figures: Figures, edge: Findings, cloud: Findings) -> str:
    both = (edge, cloud)
    pictures = [site.pictures if site else 0 for site in (figures.edge, figures.cloud)]
    return (
        f"weighings: {edge.sent} due, {edge.stored} at the edge, {cloud.stored} in the cloud, "
        f"{pictures[0]} and {pictures[1]} pictures; "
        f"lost {sum(len(findings.lost) for findings in both)}, "
        f"twice {sum(len(findings.twice) for findings in both)}, "
        f"invented {sum(len(findings.invented) for findings in both)}, "
        f"changed {sum(len(findings.changed) for findings in both)}"
    )


def _herding(folder: Path, seconds: float | None) -> list[str]:
    """A smoke check wants many animals in its minute, and power cuts; a demo is watched."""
    options = ["--dir", str(folder), "--day", str(DAY_S)]
    if seconds is None:
        return [*options, "--gap", "8", "--stands", "6", "--before", str(WEIGHED_BEFORE)]
    return [*options, "--seconds", str(seconds), "--gap", "2", "--stands", "5", "--cuts"]


def _fleet(folder: Path) -> list[str]:
    """Battery cameras at sites in three zones; they wake by their schedules.

    Each run has a folder of its own: numbers on the cards begin at 1 again.
    """
    options = ["--count", str(CAMERAS), "--seed", str(FLEET_SEED)]
    options += ["--register", provision.TENANT_ID, "--dir", str(folder)]
    options += [word for wake in WAKES for word in ("--schedule", wake)]
    faults = ["--loss", "0.1", "--duplicates", "0.05", "--reorder", "0.2", "--deaths", "0.05"]
    return [*options, *faults, "--weak", "0.2", "--every", "0", "--spread", "20"]


def _overcounted(totals: Totals) -> int:
    """Readings counted into the page's totals more often than they were stored."""
    return max(0, totals.cloud_counted - totals.cloud_readings)


def _counts_agree(totals: Totals) -> bool:
    return (
        totals.outbox_delivered == totals.cloud_accepted
        and totals.edge_readings == totals.cloud_readings == totals.cloud_counted
    )


async def _until_simulated(farm: Farm, seconds: float, say: Say) -> dict[str, int]:
    """Wait for the simulator's end; returns the memory of each process while it was at work."""
    memory: dict[str, int] = {}
    senders = [farm.children[name] for name in ("simulator", "stations")]
    deadline = time.monotonic() + seconds + 90
    while None in [sender.process.poll() for sender in senders] and time.monotonic() < deadline:
        _fail_if_fallen(farm)
        figures = await farm.observer.look()
        say(
            f"running       sent {figures.sent}, stored at the edge {_of(figures.edge)}, "
            f"in the cloud {_of(figures.cloud)}; "
            f"weighed {figures.edge.weighed if figures.edge else '?'}"
        )
        memory = farm.memory()
        await asyncio.sleep(10 if seconds > 20 else 2)  # noqa: PLR2004
    for child in senders:
        if child.process.poll() != 0:
            raise DemoError(f"{child.name} did not end well; see {child.log}")
    return memory


def _of(site: EdgeFigures | CloudFigures | None) -> str:
    return "?" if site is None else str(site.stored)


async def _until_caught_up(farm: Farm, say: Say) -> tuple[Figures, Totals]:
    """Everything confirmed has arrived, or time is over: then the comparison will say so."""
    deadline = time.monotonic() + CATCH_UP_S
    while True:
        figures, totals = await farm.observer.look(), await farm.observer.totals()
        settled = _settled(figures) and _counts_agree(totals)
        if settled and all(findings.clean for findings in await farm.observer.weighings()):
            break
        if time.monotonic() > deadline:
            break
        _fail_if_fallen(farm)
        await asyncio.sleep(0.5)
    say(
        f"caught up     {_of(figures.cloud)} events of sensors and "
        f"{figures.cloud.weighed if figures.cloud else '?'} weighings in the cloud"
    )
    return figures, totals


def _settled(figures: Figures) -> bool:
    """Pure: nothing is on its way any more."""
    edge, cloud = figures.edge, figures.cloud
    return (
        edge is not None
        and cloud is not None
        and cloud.stored >= edge.stored >= figures.confirmed
        and edge.outbox_waiting == 0
        and figures.queue_waiting == 0
    )


def _fail_if_fallen(farm: Farm) -> None:
    fallen = farm.fallen()
    if fallen:
        raise DemoError(f"{fallen.name} ended by itself; see {fallen.log}")


async def until_ready(child: Child) -> None:
    """The process answers /readyz with yes; a process that ended is not waited for."""
    deadline = time.monotonic() + READY_S
    problem = "no answer"
    async with httpx2.AsyncClient(timeout=5) as client:
        while time.monotonic() < deadline:
            if child.process.poll() is not None:
                raise DemoError(f"{child.name} did not start; see {child.log}")
            with contextlib.suppress(httpx2.HTTPError):
                answer = await client.get(f"{child.ready_url}/readyz")
                if answer.status_code == 200:  # noqa: PLR2004
                    return
                problem = answer.text
            await asyncio.sleep(0.1)
    raise DemoError(f"{child.name} is not ready after {READY_S:.0f} s: {problem}; see {child.log}")


def _spawn(root: Path, site: Site, name: str, *command: str, **settings: str) -> Child:
    """Start a process of ours; `settings` are its alone."""
    log = root / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    launch = processes.Launch(
        argv=(sys.executable, "-m", "farmiq", *command),
        environment=config.environment(over={**site.environment, **settings}),
        folder=Path.cwd(),
        log=log,
    )
    process = processes.spawn(launch, detach=False)
    return Child(name, launch, process, started_at=time.monotonic())


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
