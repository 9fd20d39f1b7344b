"""The cable to the scale: serial or TCP, opened again and again, its lines read as they come.

indicator --RS-232, USB or TCP--> [scale] --Received--> station

A scale that is away is a state, not an error: it is logged once, tried again with backoff, and
logged when it is back. A connected scale that is silent counts as away, too: continuous output
never pauses, so the cable is out or the indicator is off.
"""

import asyncio
import contextlib
import os
import re
import select
import termios
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import serial

from farmiq.device.capture.indicator import Frames, Malformed, Parse, Reading
from farmiq.plumbing import log
from farmiq.plumbing.backoff import Backoff

OPEN_WITHIN_S = 10.0
# A reader gets a tick at least so often.
TICK_S = 0.5
# A reader that lags gets the newest weights: older ones would be taken for the present.
MAX_WAITING = 256
_CHUNK = 4096

_NAME = "iot-weighvision-agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """Where the scale is: a serial device (path), or a host and a port."""

    path: str | None = None
    host: str = ""
    port: int = 0
    baud: int = 9600
    mode: str = "8N1"

    def __str__(self) -> str:
        return f"{self.path} {self.baud} {self.mode}" if self.path else f"{self.host}:{self.port}"


def port(address: str, *, baud: int = 9600, mode: str = "8N1") -> Port:
    """`serial:///dev/ttyUSB0`, `/dev/ttyUSB0` or `tcp://host:port`. Raises ValueError."""
    parts = urlsplit(address)
    if parts.scheme == "tcp":
        if not parts.hostname or not parts.port:
            raise ValueError(f"{address!r} needs a host and a port, such as tcp://10.0.0.7:4001")
        return Port(host=parts.hostname, port=parts.port)
    if parts.scheme in {"serial", ""} and parts.path.startswith("/") and not parts.netloc:
        if not re.fullmatch("[5678][NEO][12]", mode):
            raise ValueError(
                f"{mode!r} is no serial mode: data bits, parity, stop bits, such as 8N1"
            )
        return Port(path=parts.path, baud=baud, mode=mode)
    raise ValueError(
        f"{address!r} is no scale: serial:///dev/ttyUSB0 or tcp://host:port "
        "(docs/operate/hardware.md)"
    )


@dataclass(frozen=True, slots=True)
class Received:
    """A frame and its reading; `at` is when it came, on a clock that never jumps."""

    at: float
    frame: bytes
    reading: Reading | Malformed


@dataclass
class Scale:
    """`offline_reason`: why nothing comes, None while something does."""

    port: Port
    parse: Parse
    silent_s: float = 10.0
    backoff: Backoff = field(default_factory=lambda: Backoff(base_s=0.2, cap_s=10.0))
    offline_reason: str | None = "not opened yet"
    lines: int = 0
    malformed: int = 0
    overrun: int = 0
    connections: int = 0
    _frames: Frames = field(default_factory=Frames)

    @property
    def dropped_bytes(self) -> int:
        return self._frames.dropped

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Callable[[], Awaitable[Received | None]]]:
        """Gives a function that waits for the next frame; None says that TICK_S passed without."""
        queue: asyncio.Queue[Received] = asyncio.Queue(MAX_WAITING)
        listening = asyncio.create_task(self._listen(queue))

        async def receive() -> Received | None:
            if listening.done():
                listening.result()  # a bug in this program must not look like a silent scale
            try:
                async with asyncio.timeout(TICK_S):
                    return await queue.get()
            except TimeoutError:
                return None

        try:
            yield receive
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self, queue: asyncio.Queue[Received]) -> None:
        while True:
            try:
                await self._listen_once(queue)
            except (OSError, ValueError, termios.error) as error:
                self._set_offline(_reason(error))
            await self.backoff.wait()

    async def _listen_once(self, queue: asyncio.Queue[Received]) -> None:
        """Until the cable fails. Raises OSError with the reason."""
        self._frames = Frames(dropped=self._frames.dropped)
        async with _opened(self.port) as read:
            self.connections += 1
            while True:
                data = await _some(read, self.silent_s)
                now = time.monotonic()
                for frame in self._frames.feed(data):
                    self._add(queue, Received(now, frame, self.parse(frame)))

    def _add(self, queue: asyncio.Queue[Received], received: Received) -> None:
        self.lines += 1
        if isinstance(received.reading, Malformed):
            self.malformed += 1
            if is_worth_a_line(self.malformed):
                log.get(_NAME).warning(
                    "scale.malformed", reason=received.reading.reason, count=self.malformed
                )
        if self.offline_reason is not None:
            log.get(_NAME).info("scale.connected", name=str(self.port))
        self.offline_reason = None
        if queue.full():
            queue.get_nowait()
            self.overrun += 1
        queue.put_nowait(received)

    def _set_offline(self, reason: str) -> None:
        if self.offline_reason != reason:
            log.get(_NAME).warning("scale.away", name=str(self.port), reason=reason)
        self.offline_reason = reason


def is_worth_a_line(count: int) -> bool:
    """The first, the tenth, the hundredth …: noise must not fill the log."""
    return str(count).rstrip("0") == "1"


async def _some(read: Callable[[], Awaitable[bytes]], silent_s: float) -> bytes:
    try:
        async with asyncio.timeout(silent_s):
            data = await read()
    except TimeoutError:
        raise OSError(
            f"nothing came for {silent_s:g} s: is it on, and set to continuous output?"
        ) from None
    if not data:
        raise OSError("the connection ended")
    return data


@contextlib.asynccontextmanager
async def _opened(where: Port) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
    try:
        async with asyncio.timeout(OPEN_WITHIN_S):
            read, close = await (_open_serial(where) if where.path else _open_tcp(where))
    except TimeoutError:
        raise OSError(f"{where} did not answer within {OPEN_WITHIN_S:g} s") from None
    try:
        yield read
    finally:
        close()


Opened = tuple[Callable[[], Awaitable[bytes]], Callable[[], None]]


async def _open_tcp(where: Port) -> Opened:
    reader, writer = await asyncio.open_connection(where.host, where.port)

    def close() -> None:
        # Holds the writer: one that nobody holds ends its connection.
        writer.transport.abort()

    return lambda: reader.read(_CHUNK), close


async def _open_serial(where: Port) -> Opened:
    """The library sets the line; the loop reads it: no thread waits on a cable."""
    line = await asyncio.to_thread(
        serial.Serial,
        where.path,
        baudrate=where.baud,
        bytesize=int(where.mode[0]),
        parity=where.mode[1],
        stopbits=int(where.mode[2]),
        timeout=0,
        exclusive=True,
    )
    loop, file = asyncio.get_running_loop(), line.fileno()
    ready = asyncio.Event()
    loop.add_reader(file, ready.set)

    async def read() -> bytes:
        while True:
            await ready.wait()
            ready.clear()
            # Reading nothing is the end only if the line is readable.
            data = os.read(file, _CHUNK)
            if data or select.select([file], [], [], 0)[0]:
                return data or os.read(file, _CHUNK)

    def close() -> None:
        loop.remove_reader(file)
        line.close()

    return read, close


def _reason(error: Exception) -> str:
    """In words that say what to do."""
    if isinstance(error, termios.error):
        return "the adapter refuses this speed or mode"
    text = str(error) or type(error).__name__
    if "No such file" in text:
        return "there is no such device: is the cable in?"
    if "Permission denied" in text:
        return "no permission: the agent's user has to be in the group dialout"
    if "exclusively lock" in text:
        return "another program has it open"
    return text
