"""Simulated weigh stations: a herd steps on real serial lines; real agents weigh it.

herd --> stage (pty, HTTP camera) --> farmiq agent run (a process, its own buffer) --> the edge
  └--visits.jsonl: who truly stood there, and which pictures were given--> weighings.compare

Faults: `kill` (a power cut: SIGKILL), `move_clock`, a small quota (by `settings`), a blind camera,
and links that are cut (whoever puts `simulate/link.py` between). A visit during which the agent was
down, or was disturbed, is not due.
"""

import asyncio
import contextlib
import hashlib
import itertools
import os
import pty
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from farmiq import config
from farmiq.lab.simulate import herd, pictures
from farmiq.lab.simulate.herd import Animal, Visit
from farmiq.lab.simulate.life import flocks
from farmiq.lab.simulate.weighings import Visited
from farmiq.lab.stack import processes
from farmiq.messages.topics import Place

# Quick, so that a test sees many animals: a farm's station takes its time.
BRISK = {
    "AGENT_STABLE_SECONDS": "0.6",
    "AGENT_AGAIN_SECONDS": "0.6",
    "AGENT_SESSION_WEIGHTS": "3",
    "AGENT_SESSION_PICTURES": "2",
    "AGENT_TOLERANCE_KG": "0.5",
    "AGENT_HEARTBEAT_SECONDS": "10",
    # Every picture is of a visit.
    "AGENT_EMPTY_SCALE_HOURS": "0",
}
END_S = 10.0
JOURNAL = "visits.jsonl"
_MORNING = 0.28
_LEAVES_S = 0.5
LINE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A registered station: where it is, and how it reaches the edge."""

    place: Place
    station_id: str
    mqtt_url: str
    edge_url: str
    token: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AGENT_TENANT_ID": self.place.tenant_id,
            "AGENT_FARM_ID": self.place.farm_id,
            "AGENT_BARN_ID": self.place.barn_id,
            "AGENT_DEVICE_ID": self.place.device_id,
            "AGENT_STATION_ID": self.station_id,
            "AGENT_MQTT_URL": self.mqtt_url,
            "AGENT_EDGE_URL": self.edge_url,
            "AGENT_TOKEN": self.token,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How busy the scale is; `day_s` is how long a day of the herd's life lasts."""

    seed: int = 1
    animals: int = 40
    age_days: float = 120.0
    gap_s: float = 1.5
    stands_s: float = 5.0
    day_s: float = 86_400.0
    calm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Birds:
    """A flock whose birds step on the scale, in the place of a herd of pigs.

    It grows in the time of the clock: what is weighed today must fit what was weighed yesterday.
    """

    mean_kg: Callable[[datetime], float]
    spread: float
    seed: int
    count: int = 1000

    def animals(self) -> tuple[Animal, ...]:
        return tuple(
            Animal(number, 0.0, 1 + self.spread * flocks.deviation(self._chance(number)))
            for number in range(1, self.count + 1)
        )

    def weigh(self, animal: Animal, at: datetime | None = None) -> float:
        """What it weighs now, or weighed then."""
        return round(self.mean_kg(at or datetime.now(UTC)) * animal.vigour, 3)

    def settings(self) -> dict[str, str]:
        """A scale for birds is finer than one for pigs."""
        mean_kg = self.mean_kg(datetime.now(UTC))
        return {
            "AGENT_PRESENT_KG": f"{mean_kg / 4:.3f}",
            "AGENT_TOLERANCE_KG": f"{mean_kg / 80:.4f}",
            "AGENT_ZERO_KG": f"{mean_kg / 20:.3f}",
            "AGENT_ZERO_KG_PER_SECOND": f"{mean_kg / 5000:.6f}",
        }

    def _chance(self, number: int) -> float:
        return flocks.share(self.seed, "vigour", number)


# Of a scale for birds, to one for pigs.
_FINE = 0.01


@dataclass
class Stage:
    """A scale on a pseudo-terminal and a camera on HTTP; both show the same moment.

    `here` is the visit that goes on; `given` are the sha256 of pictures given since it began.

    `drawing` counts pictures that are on their way.
    """

    station_id: str
    path: Path
    camera_url: str = ""
    here: Visit | None = None
    given: list[str] = field(default_factory=list)
    pictures: int = 0
    drawing: int = 0
    blind: bool = False
    coarseness: float = 1.0
    _began: float = 0.0
    _master: int = -1

    def send(self, weight_kg: float, *, stable: bool) -> None:
        line = f"{'ST' if stable else 'US'},GS,{weight_kg:+09.3f}kg\r\n"
        # Nobody reads: the line runs full, and what is said is gone, as on a real cable.
        with contextlib.suppress(BlockingIOError):
            os.write(self._master, line.encode())

    async def talk(self) -> None:
        """A line ten times a second, for as long as the indicator is on."""
        while True:
            self.send(self._shown_kg(time.monotonic() - self._began), stable=True)
            await asyncio.sleep(LINE_S)

    async def visit(self, visit: Visit) -> None:
        """An animal comes, stands and goes."""
        self.given = []
        self.here, self._began = visit, time.monotonic()
        try:
            await asyncio.sleep(visit.stands_s)
        finally:
            self.here = None

    def _shown_kg(self, after_s: float) -> float:
        if self.here is None:
            return herd.empty_kg(
                seconds=time.monotonic(), chance=random.random(), coarseness=self.coarseness
            )
        return herd.on_scale_kg(self.here, after_s=after_s, chance=random.random())

    async def photograph(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A GET of anything is answered with a picture of now."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            body = b"" if self.blind else await self._picture()
            status = "200 OK" if body else "503 Service Unavailable"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: image/jpeg\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            )
            writer.write(body)
            await writer.drain()
        writer.close()

    async def _picture(self) -> bytes:
        # A picture of the moment after an animal left was asked for because of it: it is its own.
        here, given = self.here, self.given
        if here is not None and herd.has_left(here, after_s=time.monotonic() - self._began):
            here = None
        self.pictures += 1
        self.drawing += 1
        try:
            body = await asyncio.to_thread(
                pictures.render,
                station_id=self.station_id,
                number=self.pictures,
                at=datetime.now(UTC),
                animal=here.animal.number if here else None,
                weight_kg=here.weight_kg if here else 0.0,
            )
            given.append(hashlib.sha256(body).hexdigest())
        finally:
            self.drawing -= 1
        return body

    def plug(self) -> int:
        """Both ends of the cable; returns the one that is to be kept open for the other."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._master, slave = pty.openpty()
        os.set_blocking(self._master, False)
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(os.ttyname(slave))
        return slave

    def unplug(self, slave: int) -> None:
        os.close(self._master)
        os.close(slave)
        self.path.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def stage(station_id: str, folder: Path, *, coarseness: float = 1.0) -> AsyncIterator[Stage]:
    """The scale is a link in the folder, as udev makes one for an adapter."""
    made = Stage(station_id, folder / "scale", coarseness=coarseness)
    slave = made.plug()
    server = await asyncio.start_server(made.photograph, "127.0.0.1", 0)
    made.camera_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/snapshot.jpg"
    talking = asyncio.create_task(made.talk())
    try:
        yield made
    finally:
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        server.close()
        made.unplug(slave)


@dataclass
class SimulatedStation:
    post: Post
    folder: Path
    habits: Habits = field(default_factory=Habits)
    settings: Mapping[str, str] = field(default_factory=dict)
    birds: Birds | None = None
    visits: list[Visited] = field(default_factory=list)
    kills: int = 0
    # The agent through simulate/moved.py, whose wall clock can be moved.
    movable: bool = False
    # Where the agent's code is, with its environment, if it is of another version.
    tree: Path | None = None
    stage: Stage | None = None
    # Who stands on the scale is the last one.
    ending: bool = False
    _agent: "subprocess.Popen[bytes] | None" = None
    _disturbed: bool = False
    _log_from: int = 0
    _began: float = field(default_factory=time.monotonic)

    @property
    def journal(self) -> Path:
        return self.folder / JOURNAL

    @property
    def buffer(self) -> Path:
        return self.folder / "buffer"

    @property
    def clock_file(self) -> Path:
        return self.folder / "clock-offset"

    @property
    def is_up(self) -> bool:
        return self._agent is not None and self._agent.poll() is None

    @property
    def hears(self) -> bool:
        """The agent runs, and has heard the scale since it was started."""
        if not self.is_up:
            return False
        with (self.folder / "agent.log").open("rb") as log:
            log.seek(self._log_from)
            return b"scale.connected" in log.read()

    def start(self) -> None:
        """The agent; a power cut before it is over."""
        assert self.stage is not None, "the hardware is there before the agent"  # noqa: S101
        module = ("farmiq.lab.simulate.moved",) if self.movable else ("farmiq", "agent", "run")
        launch = processes.Launch(
            argv=(
                str(self.tree / ".venv" / "bin" / "python") if self.tree else sys.executable,
                "-m",
                *module,
            ),
            environment=config.environment(over=self._environment(self.stage)),
            folder=self.tree or Path.cwd(),
            log=self.folder / "agent.log",
        )
        log = launch.log
        self._log_from = log.stat().st_size if log.exists() else 0
        self._agent = processes.spawn(launch, detach=False)

    def _environment(self, hardware: Stage) -> dict[str, str]:
        return {
            **self.post.environment,
            "AGENT_BUFFER_DIR": str(self.buffer),
            "AGENT_STATUS_PORT": "0",
            "AGENT_SCALE_URL": f"serial://{hardware.path}",
            "AGENT_SCALE_FORMAT": "and",
            "AGENT_CAMERA_URL": hardware.camera_url,
            "SIMULATED_CLOCK_FILE": str(self.clock_file),
            **BRISK,
            **(self.birds.settings() if self.birds else {}),
            **self.settings,
        }

    def kill(self) -> None:
        """The power goes."""
        self.disturb()
        self.kills += 1
        if self._agent is not None:
            self._agent.kill()
            self._agent.wait()

    def disturb(self) -> None:
        """Something is broken: of who stands there now, nothing is promised."""
        self._disturbed = True

    def move_clock(self, seconds: float) -> None:
        """The station's wall clock is so far off from now on."""
        self.clock_file.write_text(str(seconds), encoding="ascii")

    async def stop(self) -> None:
        if self._agent is not None and self.is_up:
            self._agent.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._agent.wait, END_S)
            if self.is_up:
                self._agent.kill()
                self._agent.wait()

    async def run(self, *, visits: int | None = None, began: int = 0) -> None:
        """Animals come, one after the other, until so many have or it is `ending`.

        The agent is left running.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        habits = self.habits
        animals = (
            self.birds.animals()
            if self.birds
            else herd.herd(seed=habits.seed, count=habits.animals, age_days=habits.age_days)
        )
        with self.journal.open("ab") as journal:
            for number in itertools.count(began):
                if self.ending or (visits is not None and number >= began + visits):
                    return
                visited = await self._visit(animals, number)
                journal.write(msgspec.json.encode(visited) + b"\n")
                journal.flush()

    async def _visit(self, animals: tuple[Animal, ...], number: int) -> Visited:
        assert self.stage is not None, "the hardware is there before the animals"  # noqa: S101
        habits = self.habits
        coming = herd.visit(
            animals,
            number,
            seed=habits.seed,
            # Life begins in the morning.
            day=_MORNING + (time.monotonic() - self._began) / habits.day_s,
            gap_s=habits.gap_s,
            stands_s=habits.stands_s,
            calm=habits.calm,
            weigh=self.birds.weigh if self.birds else None,
        )
        # Without an empty scale in between, a new animal cannot be noticed.
        self._disturbed = not self.hears
        await asyncio.sleep(max(1.0, coming.gap_s))
        await self.stage.visit(coming)
        # It has left when the scale has been empty for a moment, and the last picture is given.
        await asyncio.sleep(_LEAVES_S)
        while self.stage.drawing:  # noqa: ASYNC110 - seldom, and briefly
            await asyncio.sleep(_LEAVES_S)
        visited = self._noted(coming, tuple(self.stage.given))
        self.visits.append(visited)
        return visited

    def _noted(self, visit: Visit, given: tuple[str, ...]) -> Visited:
        return Visited(
            visit_id=f"{self.post.station_id}-{visit.number}",
            station_id=self.post.station_id,
            animal=visit.animal.number,
            weight_kg=visit.weight_kg,
            due=visit.is_weighable and not self._disturbed and self.is_up,
            sha256s=given,
        )


@contextlib.asynccontextmanager
async def running(station: SimulatedStation) -> AsyncIterator[SimulatedStation]:
    """The hardware and the agent, for as long as the block lasts."""
    coarseness = _FINE if station.birds else 1.0
    async with stage(station.post.station_id, station.folder, coarseness=coarseness) as hardware:
        station.stage = hardware
        station.start()
        try:
            yield station
        finally:
            await station.stop()
            station.stage = None


def read(journal: Path) -> list[Visited]:
    """The visits that a station noted; half a line at the end is one that was being written."""
    if not journal.exists():
        return []
    lines = journal.read_bytes().splitlines(keepends=True)
    return [msgspec.json.decode(line, type=Visited) for line in lines if line.endswith(b"\n")]


def read_all(folder: Path) -> list[Visited]:
    """Who stood on the scales, of all stations under this folder."""
    return [visit for journal in sorted(folder.glob(f"*/{JOURNAL}")) for visit in read(journal)]
