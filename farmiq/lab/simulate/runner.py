"""`farmiq simulate`, `simulate cameras` and `stations`: each from start to summary.

logins file --> sensors, cameras or stations until the time is over --> what they have is delivered
"""

import asyncio
import contextlib
import json
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from farmiq.device.buffer import database as buffers
from farmiq.device.buffer import store
from farmiq.lab.simulate import backlog, camera_account, fleet, sensors, stations
from farmiq.lab.simulate.camera import Firmware
from farmiq.lab.simulate.camera_faults import Faults, Kit
from farmiq.lab.simulate.farm import Device
from farmiq.lab.simulate.fleet import Timing, Witness
from farmiq.lab.simulate.journal import Journal, Tally
from farmiq.lab.simulate.life import files, flocks
from farmiq.lab.simulate.life.flocks import Now
from farmiq.lab.simulate.stations import Birds, Habits, Post, SimulatedStation
from farmiq.messages.topics import Place
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.messaging.mqtt_address import login_url
from farmiq.plumbing.runtime.run import stop_on_signal

Say = Callable[[str], None]

PROGRESS_S = 5.0
# When the time is over all is delivered; when it is interrupted nobody lingers.
DRAIN_CAMERAS_S, DRAIN_STATIONS_S, DRAIN_INTERRUPTED_S = 120.0, 60.0, 2.0
# A power cut now and then: between two, about so many seconds.
CUTS_S = 30.0
_DARK_S = 2.0
# As a farm's stations do; animals are told from the floor by it.
WITH_EMPTY_SCALE = {"AGENT_EMPTY_SCALE_HOURS": "24"}


async def _until(
    work: "asyncio.Future[Any]",
    *,
    seconds: float | None,
    report: Callable[[], None],
    stop_requested: asyncio.Event | None = None,
) -> None:
    """Wait until the work is done, the time is over or a stop is requested."""
    stop = asyncio.create_task((stop_requested or asyncio.Event()).wait())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not (work.done() or stop.done()):
                await asyncio.wait([work, stop], timeout=PROGRESS_S, return_when="FIRST_COMPLETED")
                report()
    stop.cancel()


async def _cancel(work: "asyncio.Future[Any]") -> None:
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


@contextlib.contextmanager
def _naming(file: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{file} is not a file of logins {kind}") from error


def _devices(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))["devices"]


# --- sensors


def read_sensor_logins(file: Path, devices: list[Device]) -> sensors.Logins:
    """The logins as `farmiq device import` wrote them. Raises ValueError naming who has none."""
    with _naming(file, "as `farmiq device import` writes it"):
        logins = {
            (login["tenant_id"], login["device_id"]): (login["user"], login["password"])
            for login in _devices(file)
        }
    lacking = [
        device.place.device_id
        for device in devices
        if (device.place.tenant_id, device.place.device_id) not in logins
    ]
    if lacking:
        raise ValueError(f"{file} has no login of {', '.join(lacking)}: register them first")
    return logins


def read_flocks(file: Path) -> dict[str, Now]:
    """The barns that have a flock, as they are now. Raises ValueError."""
    life, expected, at = files.read(file), files.standard(), datetime.now(UTC)
    return {flock.barn_id: flocks.now(life, flock, expected, at) for flock in life.flocks}


async def run_sensors(
    devices: list[Device],
    url: str,
    file: Path | None,
    *,
    interval_s: float,
    day_s: float,
    seconds: float | None,
    say: Say,
    logins: sensors.Logins | None = None,
) -> dict[str, int]:
    """Simulate until the time is over or a signal comes; returns the counts of the journal."""
    mqtt.address(url)  # an address that cannot be one is refused before anything starts
    with contextlib.ExitStack() as stack:
        path = file or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "journal.jsonl"
        journal = stack.enter_context(contextlib.closing(Journal(path)))
        tally = Tally(path)

        def report() -> None:
            tally.look()
            say(f"sent {tally.count('sent')}, acknowledged {tally.count('ok')}")

        simulation = sensors.simulate(
            devices, url, journal, interval_s=interval_s, day_s=day_s,
            stop=_until_signal(seconds), logins=logins,
        )  # fmt: skip
        work = asyncio.create_task(simulation)
        await _until(work, seconds=None, report=report)
        waiting = work.result()
        counts: dict[str, int] = {act: tally.look().count(act) for act in tally.events}
        return {**counts, "waiting": waiting}


async def _until_signal(seconds: float | None) -> bool:
    """True if a signal came before the time was over."""
    stop_requested = stop_on_signal()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop_requested.wait()
    return stop_requested.is_set()


# --- cameras


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a fleet is run; without `seconds` and `wakes` until a signal comes."""

    faults: Faults
    timing: Timing
    firmware: Firmware
    wakes: int | None = None
    seconds: float | None = None
    spread_s: float = 0.0


def read_camera_logins(file: Path) -> dict[str, tuple[str, str]]:
    """(user, password) by MAC. Raises ValueError."""
    with _naming(file, "of cameras"):
        logins = json.loads(file.read_text(encoding="utf-8"))["cameras"]
        return {login["mac"]: (login["user"], login["password"]) for login in logins}


async def run_cameras(
    kits: list[Kit],
    url: str,
    folder: Path | None,
    plan: Plan,
    *,
    say: Say,
    witness: Witness | None = None,
    logins: dict[str, tuple[str, str]] | None = None,
) -> dict[str, Any]:
    """Simulate until the time is over or a signal comes; then cards are emptied."""
    mqtt.address(url)
    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        journal = stack.enter_context(contextlib.closing(Journal(place / "captures.jsonl")))
        cameras = fleet.cameras(
            kits, url, place / "cards", journal, faults=plan.faults, timing=plan.timing,
            firmware=plan.firmware, witness=witness, logins=logins,
        )  # fmt: skip
        await _live(cameras, plan, say)
        account = camera_account.read(place / "captures.jsonl")
        return {
            "cameras": len(cameras),
            "wakes": account.acts["woke"],
            "captured": len(account.captures),
            "acked": len(account.acked),
            "deaths": account.acts["died"],
            "gave_up": account.acts["gave_up"],
            "unreadable": len(account.unreadable),
            "waiting": len(account.waiting),
            "stranded": sum(camera.stranded for camera in cameras),
        }


async def _live(cameras: list[fleet.SimulatedCamera], plan: Plan, say: Say) -> None:
    def report() -> None:
        say(
            f"{sum(camera.wakes for camera in cameras)} wakes, "
            f"{sum(camera.waiting for camera in cameras)} images wait on the cards"
        )

    stop_requested = stop_on_signal()
    living = asyncio.gather(
        *(
            camera.live(wakes=plan.wakes, phase_s=plan.spread_s * number / len(cameras))
            for number, camera in enumerate(cameras)
        )
    )
    await _until(living, seconds=plan.seconds, report=report, stop_requested=stop_requested)
    await _cancel(living)
    delivering = asyncio.gather(*(camera.deliver() for camera in cameras))
    within_s = DRAIN_INTERRUPTED_S if stop_requested.is_set() else DRAIN_CAMERAS_S
    await _until(delivering, seconds=within_s, report=report)
    await _cancel(delivering)


# --- weigh stations


def read_posts(file: Path, *, mqtt_url: str, edge_url: str) -> list[Post]:
    """The stations among the logins that `farmiq device import` wrote. Raises ValueError."""
    mqtt.address(mqtt_url)
    with _naming(file, "as `farmiq device import` writes it"):
        return [
            Post(
                place=Place(
                    *(login[f"{name}_id"] for name in ("tenant", "farm", "barn", "device"))
                ),
                station_id=login["station_id"],
                mqtt_url=login_url(login["user"], login["password"], url=mqtt_url),
                edge_url=edge_url,
                token=login["token"],
            )
            for login in _devices(file)
            if login.get("station_id")
        ]


def read_birds(file: Path) -> dict[str, Birds]:
    """Who steps on the scales of a farm, by barn. Raises ValueError."""
    life, expected = files.read(file), files.standard()
    return {
        flock.barn_id: Birds(
            mean_kg=partial(flocks.mean_kg, life, flock, expected),
            spread=flock.spread,
            seed=life.seed + number,
        )
        for number, flock in enumerate(life.flocks)
    }


async def run_stations(
    posts: list[Post],
    folder: Path,
    *,
    habits: Habits,
    seconds: float | None,
    cuts: bool,
    say: Say,
    birds: Mapping[str, Birds] = MappingProxyType({}),
    before: int = 0,
) -> dict[str, Any]:
    """Simulate until the time is over or a signal comes; then the agents deliver what they have.

    In a barn that has `birds`, those step on the scale, and `before` many have on earlier days.
    """
    herds = [
        # Each station has a herd of its own.
        SimulatedStation(
            post,
            folder / post.place.device_id,
            replace(habits, seed=habits.seed + number, age_days=habits.age_days + 10 * number),
            birds=birds.get(post.place.barn_id),
            settings=WITH_EMPTY_SCALE,
        )
        for number, post in enumerate(posts)
    ]
    if before:
        say(f"drawing {before} weighings of earlier days for each station")
        for station in herds:
            if station.birds is not None:
                await backlog.fill(station, station.birds, before)
    stop_requested = stop_on_signal()
    async with contextlib.AsyncExitStack() as stack:
        for station in herds:
            await stack.enter_async_context(stations.running(station))
        await _weigh(herds, stop_requested, seconds, cuts=cuts, say=say)
        interrupted = stop_requested.is_set()
        await _drain(herds, DRAIN_INTERRUPTED_S if interrupted else DRAIN_STATIONS_S, say=say)
        waiting = sum(_waiting(station) for station in herds)
    visits = [visit for station in herds for visit in station.visits]
    return {
        "stations": len(herds),
        "visits": len(visits),
        "due": sum(visit.due for visit in visits),
        "pictures": sum(len(visit.sha256s) for visit in visits),
        "kills": sum(station.kills for station in herds),
        "waiting": waiting,
    }


async def _weigh(
    herds: list[SimulatedStation],
    stop_requested: asyncio.Event,
    seconds: float | None,
    *,
    cuts: bool,
    say: Say,
) -> None:
    def report() -> None:
        say(f"weighed {sum(len(station.visits) for station in herds)} animals")

    weighing = asyncio.gather(*(station.run() for station in herds))
    cutting = asyncio.gather(*([_cut_power(herds)] if cuts else []))
    try:
        await _until(weighing, seconds=seconds, report=report, stop_requested=stop_requested)
        for station in herds:
            station.ending = True
        await _until(weighing, seconds=None, report=report, stop_requested=stop_requested)
    finally:
        await _cancel(cutting)
        await _cancel(weighing)
        for station in herds:
            if not station.is_up:
                station.start()  # the power is back


async def _cut_power(herds: list[SimulatedStation]) -> None:
    while True:
        await asyncio.sleep(CUTS_S * random.uniform(0.5, 1.5))
        station = random.choice(herds)
        station.kill()
        await asyncio.sleep(_DARK_S)
        station.start()


async def _drain(herds: list[SimulatedStation], within_s: float, *, say: Say) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while any(_waiting(station) for station in herds):  # noqa: ASYNC110 - files of others
                await asyncio.sleep(0.2)
    say(f"delivered; {sum(_waiting(station) for station in herds)} still wait")


def _waiting(station: SimulatedStation) -> int:
    """Events and pictures that the edge has not got; an agent that never ran has none."""
    try:
        with contextlib.closing(buffers.connect_read_only(station.buffer / buffers.FILE)) as tx:
            counts = store.tally(tx)
    except (FileNotFoundError, sqlite3.Error):
        return 0
    return sum(counts[name] for name in ("waiting", "sending", "published", "pictures"))
