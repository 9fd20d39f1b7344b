"""A battery camera as its firmware behaves, over real MQTT, in either dialect."""

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, Literal
from uuid import UUID

from farmiq.plumbing.messaging import mqtt

Encoding = Literal["array", "base64", "binary"]


def picture(size: int, seed: int = 0) -> bytes:
    return b"\xff\xd8\xff\xe0" + Random(f"{size}/{seed}").randbytes(size - 6) + b"\xff\xd9"


@dataclass
class Camera:
    """`heard` is all that it was told, by channel; `loss` is each chunk's chance to be lost."""

    link: mqtt.Client
    mac: str
    device_id: UUID
    dialect: str = "standard"
    encoding: Encoding = "array"
    chunk_size: int = 1000
    loss: float = 0.0
    patience_s: float = 90.0
    chance: Random = field(default_factory=lambda: Random(7))
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def root(self) -> str:
        return "device" if self.dialect == "standard" else "ESP32CAM"

    @property
    def first(self) -> int:
        return 0 if self.dialect == "standard" else 1

    async def say(self, channel: str, body: Any) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.link.publish(f"{self.root}/{self.mac}/{channel}", raw)

    async def hello(self, pending: int = 0) -> None:
        if self.dialect == "standard":
            await self.say("status", {"alive": 1, "pending_count": pending})
        else:
            body = {"device_id": self.mac, "status": "alive", "pendingImg": pending}
            await self.say("status", body)

    async def announce(
        self, image: bytes, name: str, at: datetime | str | None, **more: Any
    ) -> None:
        when = at.astimezone(UTC).isoformat() if isinstance(at, datetime) else at
        total = -(-len(image) // self.chunk_size)
        if self.dialect == "standard":
            said = {"image_name": name, "captured_at": when, "total_chunks": total,
                    "image_size": len(image), "temperature": 21.5}  # fmt: skip
        else:
            said = {"device_id": self.mac, "capture_timestamp": when, "image_name": name,
                    "image_size": len(image), "max_chunk_size": self.chunk_size,
                    "total_chunks_count": 1, "error": 0, "temperature": 21.5}  # fmt: skip
        await self.say("data", {**said, **more})

    def pieces(self, image: bytes) -> dict[int, bytes]:
        starts = range(0, len(image), self.chunk_size)
        return {self.first + n: image[at : at + self.chunk_size] for n, at in enumerate(starts)}

    async def send(
        self, image: bytes, name: str | None, numbers: Iterable[int] | None = None
    ) -> None:
        """Chunks, some of them lost on the way; of no name if that is None."""
        pieces = self.pieces(image)
        for number in pieces if numbers is None else numbers:
            if self.chance.random() >= self.loss:
                await self.say("data", self._chunk(name, number, pieces[number]))

    def _chunk(self, name: str | None, number: int, data: bytes) -> Any:
        if self.encoding == "binary":
            called = (name or "").encode()
            head = struct.pack(">BH", 1, len(called)) + called
            return head + struct.pack(">I", number) + data
        said: dict[str, Any] = {"image_name": name, "chunk_id": number}
        if self.dialect == "esp32cam":
            said |= {"device_id": self.mac, "max_chunk_size": self.chunk_size}
        text = base64.b64encode(data).decode()
        return {**said, "payload": text if self.encoding == "base64" else list(data)}

    async def listen(self) -> tuple[str, dict[str, Any]]:
        """The next thing this camera is told: (channel, body)."""
        async with asyncio.timeout(self.patience_s):
            (message,) = await self.link.batch(max_messages=1, linger_s=0)
        self.link.ack([message])
        found = message.topic.rpartition("/")[2], json.loads(message.payload)
        self.heard.append(found)
        return found

    async def until_told(self, word: str) -> tuple[str, dict[str, Any]]:
        while word not in (told := await self.listen())[1]:
            pass
        return told

    async def until_safe(self, image: bytes, name: str) -> dict[str, Any]:
        """Send again what is missing, until the image may be forgotten; that answer."""
        while True:
            _, body = await self.listen()
            if body.get("image_name") != name:
                continue
            if "ACK_OK" in body:
                return body
            if "missing_chunks" in body:
                await self.send(image, name, body["missing_chunks"])

    async def wake(self, image: bytes, name: str, at: datetime | str | None) -> dict[str, Any]:
        await self.hello()
        await self.announce(image, name, at)
        await self.send(image, name)
        return await self.until_safe(image, name)


@asynccontextmanager
async def switched_on(url: str, mac: str, device_id: UUID, **options: Any) -> AsyncIterator[Camera]:
    root = "ESP32CAM" if options.get("dialect") == "esp32cam" else "device"
    topics = [f"{root}/{mac}/ack", f"{root}/{mac}/cmd"]
    client_id = f"camera-{mac}-{len(options)}"
    async with mqtt.connected(
        url, client_id=client_id, topics=topics, persistent_session=False
    ) as link:
        await link.until_up()
        yield Camera(link, mac, device_id, **options)
