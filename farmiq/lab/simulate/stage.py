"""The hardware of a simulated station: a scale on a pseudo-terminal, a camera on HTTP.

Both show the same moment: who stands on the scale is who the camera sees. A pseudo-terminal is a
serial line for whoever opens it; an indicator does not care whether anybody listens.
"""

import asyncio
import contextlib
import hashlib
import os
import pty
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from farmiq.lab.simulate import herd, pictures
from farmiq.lab.simulate.herd import Visit

LINE_S = 0.1


@dataclass
class Stage:
    """`here` is the visit that goes on; `given` are the sha256 of pictures given since it began.

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
    _began: float = 0.0
    _master: int = -1

    def send(self, weight_kg: float, *, stable: bool) -> None:
        line = f"{'ST' if stable else 'US'},GS,{weight_kg:+09.2f}kg\r\n"
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
            return herd.empty_kg(seconds=time.monotonic(), chance=random.random())
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
async def stage(station_id: str, folder: Path) -> AsyncIterator[Stage]:
    """The scale is a link in the folder, as udev makes one for an adapter."""
    made = Stage(station_id, folder / "scale")
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
