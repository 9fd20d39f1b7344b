"""A flaky link: a TCP relay on loopback that is cut every few seconds and stays away a while.

Shortly before a cut it swallows the answers: what was sent has arrived, and the sender never
hears of it. That is where repeats come from.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field


@dataclass
class FlakyLink:
    """Relays to (host, port); `port_here` is where to connect instead."""

    host: str
    port: int
    up_s: tuple[float, float] = (4.0, 9.0)
    down_s: tuple[float, float] = (1.0, 4.0)
    swallow_s: float = 0.5
    cuts: int = 0
    port_here: int = 0
    _up: bool = True
    _answers: bool = True
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._up:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, far_writer}
        try:
            await asyncio.gather(
                _pump(reader, far_writer, lambda: True),
                _pump(far_reader, writer, lambda: self._answers),
            )
        finally:
            self._open -= {writer, far_writer}
            for each in (writer, far_writer):
                each.transport.abort()

    async def misbehave(self) -> None:
        """Cut all connections at random moments: what was on the way is gone, answers too."""
        while True:
            await asyncio.sleep(random.uniform(*self.up_s))
            self._answers = False
            await asyncio.sleep(self.swallow_s)
            self._up = False
            self.cuts += 1
            for writer in tuple(self._open):
                writer.transport.abort()
            await asyncio.sleep(random.uniform(*self.down_s))
            self._up = self._answers = True


@contextlib.asynccontextmanager
async def flaky(host: str, port: int) -> AsyncIterator[FlakyLink]:
    link = FlakyLink(host, port)
    server = await asyncio.start_server(link.relay, "127.0.0.1", 0)
    link.port_here = server.sockets[0].getsockname()[1]
    cutting = asyncio.create_task(link.misbehave())
    try:
        yield link
    finally:
        cutting.cancel()
        server.close()
        with contextlib.suppress(asyncio.CancelledError):
            await cutting


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[], bool]
) -> None:
    with contextlib.suppress(ConnectionError, OSError):
        while data := await reader.read(65536):
            if passes():
                writer.write(data)
                await writer.drain()
    writer.close()
