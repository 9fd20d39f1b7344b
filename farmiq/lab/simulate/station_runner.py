"""`farmiq stations`: simulated weigh stations from start to summary.

logins file --> a stage and an agent process each --> animals until the time is over --> the agents
deliver what they have --> summary
"""

import asyncio
import contextlib
import json
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from farmiq.device.buffer import database as buffers
from farmiq.device.buffer import store
from farmiq.lab.simulate import stations
from farmiq.lab.simulate.stations import Habits, Post, SimulatedStation
from farmiq.messages.topics import Place
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.runtime.run import stop_on_signal

Say = Callable[[str], None]

PROGRESS_S = 5.0
DRAIN_S = 60.0
# A power cut now and then: between two, about so many seconds.
CUTS_S = 30.0
_DARK_S = 2.0


def read_posts(file: Path, *, mqtt_url: str, edge_url: str) -> list[Post]:
    """The stations among the logins that `farmiq device import` wrote. Raises ValueError."""
    mqtt.address(mqtt_url)
    try:
        logins = json.loads(file.read_text(encoding="utf-8"))["devices"]
        return [
            _post(login, mqtt_url=mqtt_url, edge_url=edge_url)
            for login in logins
            if login.get("station_id")
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{file} is not a file of logins as `farmiq device import` writes it"
        ) from error


def _post(login: dict[str, str], *, mqtt_url: str, edge_url: str) -> Post:
    parts = urlsplit(mqtt_url)
    name = f"{quote(login['user'], safe='')}:{quote(login['password'], safe='')}"
    host = parts.netloc.rpartition("@")[2]
    return Post(
        place=Place(login["tenant_id"], login["farm_id"], login["barn_id"], login["device_id"]),
        station_id=login["station_id"],
        mqtt_url=urlunsplit(parts._replace(netloc=f"{name}@{host}")),
        edge_url=edge_url,
        token=login["token"],
    )


async def run(
    posts: list[Post],
    folder: Path,
    *,
    habits: Habits,
    seconds: float | None,
    cuts: bool,
    say: Say,
) -> dict[str, Any]:
    """Simulate until the time is over or a signal comes; then the agents deliver what they have."""
    herds = [
        SimulatedStation(post, folder / post.place.device_id, _own(habits, number))
        for number, post in enumerate(posts)
    ]
    stop_requested = stop_on_signal()
    async with contextlib.AsyncExitStack() as stack:
        for station in herds:
            await stack.enter_async_context(stations.running(station))
        await _weigh(herds, stop_requested, seconds, cuts=cuts, say=say)
        await _drain(herds, 2.0 if stop_requested.is_set() else DRAIN_S, say=say)
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


def _own(habits: Habits, number: int) -> Habits:
    """Each station has a herd of its own."""
    return Habits(
        seed=habits.seed + number, animals=habits.animals, age_days=habits.age_days + 10 * number,
        gap_s=habits.gap_s, stands_s=habits.stands_s, day_s=habits.day_s, calm=habits.calm,
    )  # fmt: skip


async def _weigh(
    herds: list[SimulatedStation],
    stop_requested: asyncio.Event,
    seconds: float | None,
    *,
    cuts: bool,
    say: Say,
) -> None:
    ends_at = None if seconds is None else time.monotonic() + seconds
    weighing = [asyncio.create_task(station.run()) for station in herds]
    cutting = [asyncio.create_task(_cut_power(herds))] if cuts else []
    stop = asyncio.create_task(_until(stop_requested))
    try:
        while not stop_requested.is_set() and not all(task.done() for task in weighing):
            if ends_at is not None and time.monotonic() >= ends_at:
                for station in herds:
                    station.ending = True
            pending = [task for task in weighing if not task.done()]
            left_s = PROGRESS_S if ends_at is None else max(0.5, ends_at - time.monotonic())
            done, _ = await asyncio.wait(
                [*pending, stop], timeout=min(PROGRESS_S, left_s), return_when="FIRST_COMPLETED"
            )
            for task in done - {stop}:
                task.result()
            say(f"weighed {sum(len(station.visits) for station in herds)} animals")
    finally:
        for task in (*weighing, *cutting, stop):
            task.cancel()
        await asyncio.gather(*weighing, *cutting, stop, return_exceptions=True)
        for station in herds:
            if not station.is_up:
                station.start()  # the power is back


async def _until(event: asyncio.Event) -> None:
    await event.wait()


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
