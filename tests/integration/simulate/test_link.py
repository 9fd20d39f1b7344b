"""The misbehaving link, before a real server: each fault does what it says, and heals."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from farmiq.lab.simulate.link import Link, linked
from tests.support.until import until


class Echo:
    """Answers every line with the same line, and remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError):
            while line := await reader.readline():
                self.heard.append(line)
                writer.write(line)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.connections -= 1


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
async def link(echo: Echo) -> AsyncIterator[Link]:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with linked("127.0.0.1", port) as between:
        yield between
    server.close()
    await until(lambda: echo.connections == 0)


@asynccontextmanager
async def connected(
    link: Link,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port_here)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def say(link: Link, line: bytes) -> bytes:
    """The answer on a new connection; empty if it ended without one."""
    async with connected(link) as (reader, writer):
        writer.write(line)
        try:
            async with asyncio.timeout(60):
                return await reader.readline()
        except ConnectionError:
            return b""


async def test_a_sound_link_passes_everything(link: Link) -> None:
    assert await say(link, b"hello\n") == b"hello\n"


async def test_half_closed_connection_still_gets_its_answer(link: Link) -> None:
    long = b"x" * 200_000 + b"\n"
    async with connected(link) as (reader, writer):
        writer.write(b"one\n" * 3)
        writer.write_eof()
        assert await reader.read() == b"one\n" * 3
    async with connected(link) as (reader, writer):
        link.delay_s = 0.01
        for _ in range(5):
            writer.write(long[-60_000:])
        writer.write_eof()
        assert await reader.read() == long[-60_000:] * 5


async def test_cut_link_ends_open_connections_and_takes_new_ones(link: Link) -> None:
    async with connected(link) as (reader, writer):
        writer.write(b"one\n")
        assert await reader.readline() == b"one\n"
        link.cut()
        assert await _ended(reader)
    assert await say(link, b"again\n") == b"again\n"
    assert link.cuts == 1


async def test_link_refuses_connections_until_it_is_healed(link: Link, echo: Echo) -> None:
    link.refusing = True
    assert await say(link, b"hello\n") == b""
    assert echo.heard == []
    link.heal()
    assert await say(link, b"hello\n") == b"hello\n"


async def test_swallowing_lets_the_request_through_and_keeps_the_answer(
    link: Link, echo: Echo
) -> None:
    async with connected(link) as (reader, writer):
        link.swallowing = True
        writer.write(b"did it arrive?\n")
        await until(lambda: echo.heard == [b"did it arrive?\n"])
        link.cut()
        assert await _ended(reader)


async def _ended(reader: asyncio.StreamReader) -> bool:
    """The connection is gone, without another byte."""
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


async def test_delay_and_throttle_hold_every_piece_back(link: Link) -> None:
    """Held back for at least that long; how much longer is the machine's affair."""
    for fault in ({"delay_s": 0.1}, {"bytes_per_s": 60.0}):
        for name, value in fault.items():
            setattr(link, name, value)
        began = time.monotonic()
        assert await say(link, b"hello\n") == b"hello\n"
        assert time.monotonic() - began >= 0.2
        link.heal()
