"""A tap on the wire between a station and its broker: what the station published, packet by packet.

It reads MQTT 3.1.1 from the bytes themselves, so that what it says is not what a library says.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

PUBLISH = 3


@dataclass(frozen=True, slots=True)
class Published:
    topic: str
    qos: int
    retain: bool
    at: float


@dataclass
class Tap:
    """Relays to (host, port). `late_s` is how late this process itself was at its worst."""

    host: str
    port: int
    port_here: int = 0
    late_s: float = 0.0
    published: list[Published] = field(default_factory=list)

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
        try:
            await asyncio.gather(
                self._pump(reader, far_writer, noted=True),
                self._pump(far_reader, writer, noted=False),
            )
        finally:
            writer.close()
            far_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, noted: bool
    ) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if noted:
                    now = asyncio.get_running_loop().time()
                    rest += data
                    for kind, flags, body in _packets(rest):
                        rest = rest[len(rest) - body[1] :]
                        if kind == PUBLISH:
                            self._note(flags, body[0], now)
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    def _note(self, flags: int, body: bytes, now: float) -> None:
        length = int.from_bytes(body[:2], "big")
        topic = body[2 : 2 + length].decode()
        self.published.append(Published(topic, flags >> 1 & 3, bool(flags & 1), now))

    async def watch(self) -> None:
        """How late a sleep of ten milliseconds ends: so late may a packet be seen."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(0.01)
            self.late_s = max(self.late_s, loop.time() - began - 0.01)


def _packets(data: bytes) -> Iterator[tuple[int, int, tuple[bytes, int]]]:
    """(kind, flags, (body, how many bytes are left behind it)) of every whole packet."""
    at = 0
    while at + 2 <= len(data):
        length, shift, behind = 0, 0, at + 1
        while behind < len(data):
            length |= (data[behind] & 127) << shift
            shift += 7
            behind += 1
            if data[behind - 1] < 128:
                break
        else:
            return
        if len(data) < behind + length:
            return
        end = behind + length
        yield data[at] >> 4, data[at] & 15, (data[behind:end], len(data) - end)
        at = end


@contextlib.asynccontextmanager
async def tapped(host: str, port: int) -> AsyncIterator[Tap]:
    tap = Tap(host, port)
    server = await asyncio.start_server(tap.relay, "127.0.0.1", 0)
    tap.port_here = server.sockets[0].getsockname()[1]
    watching = asyncio.create_task(tap.watch())
    try:
        yield tap
    finally:
        watching.cancel()
        server.close()
