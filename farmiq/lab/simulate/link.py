"""A link that misbehaves: a TCP relay on loopback to put between any two parties.

It can refuse, cut, delay, throttle, and swallow: what was sent has arrived, and the sender never
hears of it. That last one is where repeats come from.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Link:
    """Relays to (host, port); `port_here` is where to connect instead. Faults are set live."""

    host: str
    port: int
    port_here: int = 0
    refusing: bool = False
    swallowing: bool = False
    delay_s: float = 0.0
    bytes_per_s: float | None = None
    cuts: int = 0
    _cut: asyncio.Event = field(default_factory=asyncio.Event)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _relays: "set[asyncio.Task[Any]]" = field(default_factory=set)

    def cut(self) -> None:
        """Every connection ends now, without goodbye; what was on the way is gone."""
        self.cuts += 1
        self._cut.set()
        self._cut = asyncio.Event()
        for writer in tuple(self._open):
            writer.transport.abort()

    def heal(self) -> None:
        """No fault any more."""
        self.refusing = self.swallowing = False
        self.delay_s, self.bytes_per_s = 0.0, None

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        relay = asyncio.current_task()
        if relay is not None:
            self._relays.add(relay)
            relay.add_done_callback(self._relays.discard)
        cuts = self.cuts
        try:
            far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            writer.transport.abort()
            return
        if self.cuts != cuts:
            for end in (writer, far_writer):
                end.transport.abort()
            return
        self._open |= {writer, far_writer}
        try:
            await asyncio.gather(
                self._pump(reader, far_writer, answers=False),
                self._pump(far_reader, writer, answers=True),
            )
            await asyncio.gather(_flushed(writer), _flushed(far_writer))
        finally:
            self._open -= {writer, far_writer}
            for end in (writer, far_writer):
                end.transport.abort()

    async def close(self) -> None:
        """Cut, and wait until nothing of it is left."""
        self.cut()
        if self._relays:
            await asyncio.wait(self._relays)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        try:
            while data := await reader.read(65536):
                await self._hold(len(data))
                if not (answers and self.swallowing):
                    writer.write(data)
                    await writer.drain()
            # Who has said everything may still be listening: only this direction has ended.
            writer.write_eof()
        except OSError:
            writer.transport.abort()

    async def _hold(self, size: int) -> None:
        wait_s = self.delay_s + (size / self.bytes_per_s if self.bytes_per_s else 0.0)
        if wait_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._cut.wait()


async def _flushed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def linked(host: str, port: int) -> AsyncIterator[Link]:
    """A link to (host, port) for as long as the block lasts; sound until a fault is set."""
    link = Link(host, port)
    server = await asyncio.start_server(link.relay, "127.0.0.1", 0)
    link.port_here = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        await link.close()


@contextlib.asynccontextmanager
async def flaky(host: str, port: int) -> AsyncIterator[Link]:
    """A link that is cut every few seconds and stays away a while."""
    async with linked(host, port) as link:
        misbehaving = asyncio.create_task(_misbehave(link))
        try:
            yield link
        finally:
            misbehaving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await misbehaving


async def _misbehave(link: Link) -> None:
    while True:
        await asyncio.sleep(random.uniform(4.0, 9.0))
        link.swallowing = True
        await asyncio.sleep(0.5)
        link.refusing = True
        link.cut()
        await asyncio.sleep(random.uniform(1.0, 4.0))
        link.heal()
