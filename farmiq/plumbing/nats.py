"""The NATS protocol, as little of it as a service needs: publish, request, answer requests.

One connection, driven by the loop. It does not come back by itself: whoever opened it opens
another one when it ended, with a backoff of its own.
"""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

DEFAULT_PORT = 4222
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 5.0
# The longest line of the protocol, and the longest message that we take.
MAX_LINE_BYTES = 64 * 1024
MAX_MESSAGE_BYTES = 2**20


class NatsError(Exception):
    """The server is away, refused the login, or answered nothing or with an error."""


@dataclass(frozen=True, slots=True)
class Message:
    subject: str
    payload: bytes
    reply: str = ""
    status: str = ""


Handler = Callable[[Message], None]


class Connection:
    """Open it with `connected()`. After `closed` is set nothing comes and nothing goes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._numbers = itertools.count(1)
        self._handlers: dict[str, Handler] = {}
        self._answers: dict[str, asyncio.Future[Message]] = {}
        self.closed = asyncio.Event()
        self.reason = ""

    def publish(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        words = " ".join(word for word in ("PUB", subject, reply, str(len(payload))) if word)
        self._writer.write(words.encode() + b"\r\n" + payload + b"\r\n")

    def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> None:
        """`handler` is called with each message, in order, and must not block."""
        number = str(next(self._numbers))
        self._handlers[number] = handler
        words = " ".join(word for word in ("SUB", subject, queue, number) if word)
        self._writer.write(words.encode() + b"\r\n")

    async def request(
        self, subject: str, payload: bytes = b"", *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> bytes:
        """The answer to a question. Raises NatsError."""
        reply = f"{self._inbox}.{next(self._numbers)}"
        answer = self._answers[reply] = asyncio.Future()
        try:
            self.publish(subject, payload, reply=reply)
            async with asyncio.timeout(timeout_s):
                message = await answer
        except TimeoutError:
            raise NatsError(f"{subject}: no answer within {timeout_s:g} s") from None
        finally:
            self._answers.pop(reply, None)
        if message.status.startswith("503"):
            raise NatsError(f"{subject}: nobody answers it")
        return message.payload

    async def _greet(self, url: str) -> None:
        parts = urlsplit(url)
        await self._line()
        options = {
            "user": unquote(parts.username or ""), "pass": unquote(parts.password or ""),
            "verbose": False, "pedantic": False, "headers": True, "no_responders": True,
            "echo": False, "lang": "python", "version": "0", "protocol": 1, "name": "farmiq",
        }  # fmt: skip
        self._writer.write(b"CONNECT " + msgspec.json.encode(options) + b"\r\nPING\r\n")
        line = await self._line()
        if line != b"PONG":
            raise NatsError(line.decode(errors="replace"))
        self.subscribe(f"{self._inbox}.*", self._take_answer)

    def _take_answer(self, message: Message) -> None:
        answer = self._answers.get(message.subject)
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _line(self) -> bytes:
        line = await self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise NatsError("the server closed the connection")
        return line[:-2]

    async def _read(self) -> None:
        """Until the connection ends."""
        try:
            while True:
                await self._take(await self._line())
        except (OSError, NatsError, ValueError, asyncio.IncompleteReadError) as error:
            self.reason = str(error) or type(error).__name__
        finally:
            self.closed.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(NatsError(self.reason or "the connection was closed"))

    async def _take(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        if word == b"PING":
            self._writer.write(b"PONG\r\n")
        elif word in (b"MSG", b"HMSG"):
            await self._take_message(rest.decode().split(), headers=word == b"HMSG")
        elif word == b"-ERR":
            self.reason = rest.decode(errors="replace")
            if "permissions violation" not in self.reason.lower():
                raise NatsError(self.reason)

    async def _take_message(self, words: list[str], *, headers: bool) -> None:
        """MSG subject number [reply] bytes, HMSG subject number [reply] header-bytes bytes."""
        size = int(words.pop())
        header_size = int(words.pop()) if headers else 0
        if size > MAX_MESSAGE_BYTES:
            raise NatsError(f"a message of {size} bytes is longer than we take")
        data = await self._reader.readexactly(size + 2)
        subject, number, *reply = words
        # NATS/1.0 503 …
        status = data[:header_size].split(b"\r\n")[0].decode(errors="replace")[9:]
        message = Message(subject, data[header_size:-2], reply[0] if reply else "", status)
        if (handler := self._handlers.get(number)) is not None:
            handler(message)


@contextlib.asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Connection]:
    """A connection for as long as the block lasts. Raises NatsError if there is none.

    `nats://user:password@host:port`; `ssl` as asyncio takes it.
    """
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                parts.hostname or "127.0.0.1",
                parts.port or DEFAULT_PORT,
                limit=MAX_LINE_BYTES,
                **options,
            )
            connection = Connection(reader, writer)
            await connection._greet(url)  # noqa: SLF001 - half of opening it
    except (OSError, TimeoutError, ValueError) as error:
        raise NatsError(str(error) or "no answer") from error
    reading = asyncio.create_task(connection._read())  # noqa: SLF001
    try:
        yield connection
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
