"""What was received from cameras and is not committed yet; line.py says what is taken next."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator

import prometheus_client

from farmiq.cloud.camera.gateway.line import Line
from farmiq.plumbing import mqtt

# Among these the others come first. With what waits, fewer than the broker lets be unacknowledged.
MOST_HELD = 3_000
MOST_HELD_BYTES = 8 * 2**20
# While nothing is taken yet: all that the broker lets be unacknowledged, or what was left waits
# behind what is new.
MOST_SETTLING_BYTES = 48 * 2**20
BATCH = 200
BATCH_BYTES = 2 * 2**20
LINGER_S = 0.02

TAKEN = prometheus_client.Counter(
    "farmiq_camera_messages_total", "Messages taken from cameras", ["outcome"]
)


class Hand:
    """`settle_s`: for so long a new connection may be brought what the last one left."""

    def __init__(self, broker: mqtt.Client, *, settle_s: float) -> None:
        self._broker, self._settle_s = broker, settle_s
        self.line = Line()

    @property
    def waiting(self) -> int:
        return self._broker.waiting + self.line.count

    @property
    def lacks_some(self) -> bool:
        """Whether the broker has, or may have, more that was sent before what is here."""
        return self._is_full or time.monotonic() < self._settled_at

    def topics(self) -> Iterator[str]:
        return itertools.chain(self.line.topics(), self._broker.waiting_topics())

    async def next(self) -> list[mqtt.Message]:
        """What is taken together; whoever has sent much does not fill it while others wait."""
        while True:
            self._join([])
            while self._broker.waiting and not self._is_full:
                self._join(await self._received(linger_s=0.0))
            now = time.monotonic()
            if taken := self.line.take(most=BATCH, most_bytes=BATCH_BYTES, now=now):
                return taken
            await self._more(within_s=self.line.settles_for(now) if self.line.count else None)

    async def _more(self, *, within_s: float | None) -> None:
        if self._is_full:
            await asyncio.sleep(within_s or 0.0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                self._join(await self._received(linger_s=LINGER_S))

    async def _received(self, *, linger_s: float) -> list[mqtt.Message]:
        return await self._broker.batch(most=BATCH, linger_s=linger_s, most_bytes=BATCH_BYTES)

    def _join(self, messages: list[mqtt.Message]) -> None:
        self.line.connected(self._broker.connection, settled_at=self._settled_at)
        self.line.join(messages)
        if stale := self.line.stale():
            TAKEN.labels(outcome="stale").inc(len(stale))
            self._broker.ack(stale)

    @property
    def _settled_at(self) -> float:
        resumed_at = self._broker.resumed_at
        return 0.0 if resumed_at is None else resumed_at + self._settle_s

    @property
    def _is_full(self) -> bool:
        if time.monotonic() < self._settled_at:
            return self.line.bytes >= MOST_SETTLING_BYTES
        return self.line.count >= MOST_HELD or self.line.bytes >= MOST_HELD_BYTES
