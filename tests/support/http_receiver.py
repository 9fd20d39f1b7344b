"""A real HTTP server on loopback that stores what is posted and answers as a test says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.ports import free_port


@dataclass(frozen=True)
class Posted:
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class HttpReceiver:
    """`posted` grows before the answer is sent."""

    port: int
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    # Whether the body goes on for ever.
    is_endless: bool = False
    posted: list[Posted] = field(default_factory=list)
    # While it is clear nothing is answered.
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the test ends
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.posted.append(Posted(head[0].split(" ")[1], headers, body))
        await self.answering.wait()
        lines = [f"HTTP/1.1 {self.status} x", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + self.body)
        while self.is_endless:
            writer.write(self.body)
            await writer.drain()
        await writer.drain()


@asynccontextmanager
async def http_receiver(*, port: int | None = None) -> AsyncIterator[HttpReceiver]:
    """A server that runs in this process."""
    receiver = HttpReceiver(port or free_port())
    receiver.answering.set()
    listening = await asyncio.start_server(receiver.serve, "127.0.0.1", receiver.port)
    try:
        yield receiver
    finally:
        listening.close()
        for task in receiver.serving:
            task.cancel()
        await asyncio.gather(*receiver.serving, return_exceptions=True)
