"""A scale over a real pseudo-terminal and a real TCP server: read, lost, found again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from farmiq.device.capture import indicator, scale
from farmiq.device.capture.indicator import Malformed, Reading
from farmiq.device.capture.scale import Received, Scale
from farmiq.plumbing.backoff import Backoff
from tests.integration.device.barn import Cable
from tests.support.until import until


def quick(port: scale.Port, name: str = "and", *, silent_s: float = 10.0) -> Scale:
    return Scale(
        port,
        indicator.parser(name),
        silent_s=silent_s,
        backoff=Backoff(base_s=0.01, cap_s=0.05),
    )


@pytest.fixture
def cable(tmp_path: Path) -> Cable:
    return Cable(tmp_path / "ttyUSB0")


@contextlib.asynccontextmanager
async def hearing(what: Scale) -> AsyncIterator[list[Received]]:
    heard: list[Received] = []

    async with what.listening() as following:

        async def listen() -> None:
            while True:
                each = await following()
                if each:
                    heard.append(each)

        task = asyncio.create_task(listen())
        try:
            yield heard
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_lines_over_a_serial_cable(cable: Cable) -> None:
    there = quick(scale.port(f"serial://{cable.path}", baud=19200, mode="8N2"))
    async with hearing(there) as heard:
        await until(lambda: there.connections)
        cable.send(b"2.30kg\r\nST,GS,+0012.34kg\r\n\xff\xfe\r\nUS,G")
        cable.send(b"S,+0012.50kg\r\n")
        await until(lambda: there.lines == 4)
    assert [each.reading for each in heard if isinstance(each.reading, Reading)] == [
        Reading(12.34, stable=True),
        Reading(12.50, stable=False),
    ]
    assert there.malformed == 2
    assert there.offline_reason is None


async def test_adapter_pulled_and_put_back(cable: Cable) -> None:
    there = quick(scale.port(str(cable.path)))
    async with hearing(there) as heard:
        await until(lambda: there.connections)
        cable.send(b"ST,GS,+0001.00kg\r\n")
        await until(lambda: heard)
        cable.unplug()
        await until(lambda: there.offline_reason and "is the cable in" in there.offline_reason)
        cable.plug()
        await until(lambda: there.connections == 2)
        cable.send(b"ST,GS,+0002.00kg\r\n")
        await until(lambda: len(heard) == 2)
        assert there.offline_reason is None
    assert heard[1].reading == Reading(2.0, stable=True)


async def test_port_that_is_not_there_is_said_and_waited_for(tmp_path: Path) -> None:
    there = quick(scale.port(str(tmp_path / "ttyUSB7")))
    async with hearing(there):
        await until(lambda: there.offline_reason and "is the cable in" in there.offline_reason)


async def test_two_programs_do_not_share_a_cable(cable: Cable) -> None:
    first, second = quick(scale.port(str(cable.path))), quick(scale.port(str(cable.path)))
    async with hearing(first):
        await until(lambda: first.connections)
        async with hearing(second):
            await until(lambda: second.offline_reason == "another program has it open")


class Server:
    """An indicator, or a converter, with an address."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._joined, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _joined(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)

    async def stop(self) -> None:
        self._server.close()
        for writer in self.writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await self._server.wait_closed()


async def test_lines_over_tcp_and_a_server_that_restarts(free_port: Callable[[], int]) -> None:
    server = Server()
    await server.start(free_port())
    there = quick(scale.port(f"tcp://127.0.0.1:{server.port}"), "ohaus")
    async with hearing(there) as heard:
        await until(lambda: server.writers)
        server.writers[0].write(b"  12.34 kg\r\n  12.40 k")
        await until(lambda: heard)
        await server.stop()
        await until(lambda: there.offline_reason)
        again = Server()
        await again.start(server.port)
        await until(lambda: again.writers)
        again.writers[0].write(b"  13.00 kg\r\n")
        await until(lambda: len(heard) == 2)
        await again.stop()
    # What was left of a line before the cut is not glued to the first one after it.
    assert [each.reading for each in heard] == [
        Reading(12.34, stable=True),
        Reading(13.0, stable=True),
    ]


async def test_connected_scale_that_says_nothing_is_away() -> None:
    server = Server()
    await server.start()
    there = quick(scale.port(f"tcp://127.0.0.1:{server.port}"), silent_s=0.05)
    async with hearing(there):
        await until(lambda: there.connections > 1)
        assert there.offline_reason is not None
        assert "continuous output" in there.offline_reason
    await server.stop()


async def test_noise_is_counted_and_the_next_weight_is_read(cable: Cable) -> None:
    there = quick(scale.port(str(cable.path)))
    async with hearing(there) as heard:
        await until(lambda: there.connections)
        for _ in range(20):
            cable.send(bytes(range(128, 250)))
        cable.send(b"\r\nST,GS,+0012.34kg\r\n")
        await until(lambda: any(isinstance(each.reading, Reading) for each in heard))
    assert there.dropped_bytes >= 20 * 122
    assert all(isinstance(each.reading, Malformed) for each in heard[:-1])


async def test_slow_reader_gets_the_newest_weights(cable: Cable) -> None:
    there = quick(scale.port(str(cable.path)))
    async with there.listening() as following:
        await until(lambda: there.connections)
        for number in range(scale.MAX_WAITING + 50):
            cable.send(f"ST,GS,{number:+08.2f}kg\r\n".encode())
            await asyncio.sleep(0)
        await until(lambda: there.lines == scale.MAX_WAITING + 50)
        heard = await following()
        assert heard is not None
        assert heard.reading == Reading(50.0, stable=True)
        assert there.overrun == 50


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("tcp://host", "8N1"),
        ("ttyUSB0", "8N1"),
        ("serial://dev/ttyUSB0", "8N1"),
        ("http://host:80/", "8N1"),
        ("/dev/ttyUSB0", "9N1"),
        ("/dev/ttyUSB0", "8X1"),
        ("/dev/ttyUSB0", "8N"),
    ],
)
def test_address_that_cannot_work_is_rejected(address: str, mode: str) -> None:
    with pytest.raises(ValueError, match=r"is no|needs a host"):
        scale.port(address, mode=mode)
