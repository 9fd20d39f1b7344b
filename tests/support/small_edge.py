"""An edge of a test's own: a gateway on a real broker that sends receipts, a media store over HTTP.

It keeps whatever arrives, as often as it arrives, and can be told to refuse, to be silent, or to
answer wrongly. The real gateway and media store have tests of their own.
"""

import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from farmiq.messages import envelope, receipt, topics
from farmiq.messages.topics import Place
from farmiq.plumbing import ids
from farmiq.plumbing.messaging import mqtt
from tests.support.station import WHO


@dataclass(frozen=True, slots=True)
class Arrived:
    topic: str
    raw: bytes
    at: float

    @property
    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.raw)
        return body

    @property
    def session_id(self) -> str | None:
        where = topics.parse(self.topic)
        return str(where.session_id) if isinstance(where, topics.SessionTopic) else None


@dataclass
class Gateway:
    """`arrived` is everything, repeats too. `refuse` gives a reason; `silent` sends no receipts."""

    place: Place = WHO.place
    arrived: list[Arrived] = field(default_factory=list)
    statuses: list[Arrived] = field(default_factory=list)
    refuse: Callable[[Arrived], str | None] = lambda _: None
    silent: bool = False
    # A broker forgets what is published before its first subscriber came.
    up: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, url: str) -> None:
        async with mqtt.connected(
            url, client_id="test-gateway", topics=topics.UP, max_waiting=50_000
        ) as broker:
            self.broker = broker
            await broker.until_up()
            self.up.set()
            while True:
                messages = await broker.batch(max_messages=500, linger_s=0.02)
                now = asyncio.get_running_loop().time()
                new = [Arrived(each.topic, each.payload, now) for each in messages]
                self.statuses += [each for each in new if each.topic.startswith("iot/status/")]
                events = [each for each in new if not each.topic.startswith("iot/status/")]
                self.arrived += events
                if events and not self.silent:
                    await self._confirm(broker, events)
                broker.ack(messages)

    async def _confirm(self, broker: mqtt.Client, events: list[Arrived]) -> None:
        said = {UUID(each.body["event_id"]): self.refuse(each) for each in events}
        raw = receipt.write(
            self.place,
            stored=tuple(key for key, why in said.items() if why is None),
            refused={key: why for key, why in said.items() if why is not None},
            event_id=ids.new(),
            now=envelope.read(events[0].raw).ts,
        )
        with contextlib.suppress(mqtt.DisconnectedError):
            await broker.publish(topics.receipts(self.place), raw)

    async def command(self, name: str, args: dict[str, Any], *, command_id: str) -> None:
        event_id = str(ids.new())
        body = {
            "schema_version": "1.0", "event_id": event_id, "trace_id": event_id,
            "tenant_id": self.place.tenant_id, "device_id": self.place.device_id,
            "event_type": "device.command", "ts": "2026-03-01T06:00:00Z",
            "payload": {"command_id": command_id, "args": args},
        }  # fmt: skip
        await self.broker.publish(topics.command(self.place, name), json.dumps(body).encode())

    def distinct(self) -> dict[str, Arrived]:
        """By event_id; two that share an id and differ in a byte or a topic fail the test."""
        found: dict[str, Arrived] = {}
        for each in self.arrived:
            known = found.setdefault(each.body["event_id"], each)
            assert (known.topic, known.raw) == (each.topic, each.raw)
        return found

    def types(self) -> Counter[str]:
        return Counter(each.body["event_type"] for each in self.distinct().values())

    def of(self, event_type: str) -> list[Arrived]:
        return [each for each in self.distinct().values() if each.body["event_type"] == event_type]


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class MediaStore:
    """Presign and PUT as the contract has them: the first PUT wins, a second is 412.

    `answers` are taken first, one per request: (status, body), or None to cut the connection.
    """

    port: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    presign_answers: list[tuple[int, dict[str, Any]] | None] = field(default_factory=list)
    put_answers: list[int | None] = field(default_factory=list)
    # Keeps the bytes of a PUT whose answer gets lost.
    keep_before_cut: bool = True

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["MediaStore"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await self._read(reader)
                self.requests.append(request)
                answer = self._presign(request) if request.method == "POST" else self._put(request)
                if answer is None:
                    break
                status, body = answer
                raw = json.dumps(body).encode()
                head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(raw)}\r\n\r\n"
                writer.write(head.encode() + raw)
                await writer.drain()
        writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Request(method, path, headers, body)

    def _presign(self, request: Request) -> tuple[int, dict[str, Any]] | None:
        if self.presign_answers:
            return self.presign_answers.pop(0)
        media_id = json.loads(request.body)["mediaId"]
        answer = {
            "upload_url": f"{self.url}/bucket/{media_id}?signed=yes",
            "media_id": media_id,
            "expires_at": "2036-01-01T00:00:00Z",
            "required_headers": {"if-none-match": "*"},
        }
        if media_id in self.objects:
            data = self.objects[media_id]
            sha256 = hashlib.sha256(data).hexdigest()
            answer |= {"stored": True, "size_bytes": len(data), "sha256": sha256}
        return 200, answer

    def _put(self, request: Request) -> tuple[int, dict[str, Any]] | None:
        media_id = request.path.split("/")[2].partition("?")[0]
        if self.put_answers:
            status = self.put_answers.pop(0)
            if status is None:
                if self.keep_before_cut:
                    self.objects[media_id] = request.body
                return None
            return status, {}
        if media_id in self.objects:
            return 412, {}
        self.objects[media_id] = request.body
        return 200, {}
