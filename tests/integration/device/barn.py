"""A small barn: a scale on a pseudo-terminal, a camera on HTTP, and a notebook on a real disk."""

import asyncio
import contextlib
import os
import pty
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farmiq.device.buffer import database as buffers
from farmiq.device.buffer.database import Clock
from farmiq.device.buffer.recorder import Recorder
from farmiq.device.buffer.rules import Identity
from farmiq.device.buffer.writer import Limits, Writer
from farmiq.messages.topics import Place
from tests.integration.device.pictures import picture

PLACE = Place("hillside", "hill-farm", "barn-1", "station-1")


class Cable:
    """A serial cable with two ends; `path` is a link, as udev makes one for an adapter."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plug()

    def plug(self) -> None:
        self.master, slave = pty.openpty()
        name = os.ttyname(slave)
        os.close(slave)
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(name)

    def send(self, data: bytes) -> None:
        os.write(self.master, data)

    def weigh(self, weight_kg: float, *, stable: bool = True) -> None:
        self.send(f"{'ST' if stable else 'US'},GS,{weight_kg:+09.2f}kg\r\n".encode())

    def unplug(self) -> None:
        os.close(self.master)
        self.path.unlink()


@dataclass
class Snapshots:
    """A camera with an address; each picture it gives has other bytes."""

    given: list[bytes] = field(default_factory=list)
    failing: bool = False
    url: str = ""
    # Cleared while it is slow.
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await self.answers.wait()
            body = b"" if self.failing else picture(len(self.given) + 1)
            status = "503 Busy" if self.failing else "200 OK"
            if body:
                self.given.append(body)
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            writer.close()


@contextlib.asynccontextmanager
async def snapshots() -> AsyncIterator[Snapshots]:
    camera = Snapshots()
    server = await asyncio.start_server(camera.handle, "127.0.0.1", 0)
    camera.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/snapshot.jpg"
    try:
        yield camera
    finally:
        server.close()
        await server.wait_closed()


@contextlib.asynccontextmanager
async def recorder(folder: Path, **limits: Any) -> AsyncIterator[Recorder]:
    buffer = await buffers.opened(folder, clock=Clock())
    given = {
        "events": 10_000,
        "age_s": 259_200.0,
        "stored_s": 86_400.0,
        "patience_s": 0.0,
        "picture_bytes": 2**30,
        "disk_reserve_bytes": 0,
        "max_weight_kg": 2000.0,
        **limits,
    }
    try:
        yield Recorder(buffer, Writer(Identity(PLACE, "scale-1"), buffer, Limits(**given)))
    finally:
        await buffer.close()


async def rows(book: Recorder, query: str) -> list[Any]:
    def work(tx: Any) -> list[Any]:
        return [tuple(row) for row in tx.execute(query).fetchall()]

    return await book.buffer.do(work)
