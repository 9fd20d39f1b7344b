"""Receipts: the answers to devices, collected for a moment, one message per device (C-91).

A device whose receipt is lost only sends its events again. So nothing waits for receipts, and they
are dropped when too many wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from uuid import UUID

from farmiq.messages import receipt, topics
from farmiq.messages.topics import Place
from farmiq.plumbing import ids
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.messaging.stream import LostError

# Waiting makes fewer and larger receipts.
LINGER_S = 0.2
MAX_WAITING = 20_000
# An id takes 39 bytes of JSON, a reason up to 500: a receipt stays below the limit of a message.
MAX_IDS = 2_000
MAX_REJECTED = 200

Publish = Callable[[str, bytes], Awaitable[None]]
# The connection was lost: the broker may have it or not.
_LOST = (mqtt.DisconnectedError, LostError)

# For each device: stored ids, and rejected ids with the reason.
Results = Mapping[Place, tuple[tuple[UUID, ...], Mapping[UUID, str]]]


class Receipts:
    """`wanted`: whether a device wants receipts."""

    def __init__(
        self, publish: Publish, *, wanted: Callable[[Place], bool] = lambda _: True
    ) -> None:
        self._publish, self._wanted = publish, wanted
        self._stored: dict[Place, list[UUID]] = {}
        self._rejected: dict[Place, dict[UUID, str]] = {}
        self._waiting = 0
        self._added = asyncio.Event()

    def add(self, results: Results) -> None:
        for place, (stored, rejected) in results.items():
            count = len(stored) + len(rejected)
            if self._wanted(place) and self._waiting + count <= MAX_WAITING:
                self._stored.setdefault(place, []).extend(stored)
                self._rejected.setdefault(place, {}).update(rejected)
                self._waiting += count
                self._added.set()

    async def run(self) -> None:
        while True:
            await self._added.wait()
            await asyncio.sleep(LINGER_S)
            await self._send()

    async def _send(self) -> None:
        """Send what waits; what is added meanwhile waits for the next time."""
        self._added.clear()
        stored, rejected = self._stored, self._rejected
        self._stored, self._rejected, self._waiting = {}, {}, 0
        sending = [
            self._publish(topics.receipts(place), raw)
            for place in stored
            for raw in _written(place, stored[place], rejected[place])
        ]
        for result in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, _LOST):
                raise result


def _written(place: Place, stored: list[UUID], rejected: dict[UUID, str]) -> Iterator[bytes]:
    """Yield one receipt, or more if it would be too long."""
    now, reasons = datetime.now(UTC), [*rejected.items()]
    while stored or reasons:
        part, some = stored[:MAX_IDS], reasons[:MAX_REJECTED]
        stored, reasons = stored[MAX_IDS:], reasons[MAX_REJECTED:]
        yield receipt.write(
            place, stored=tuple(part), refused=dict(some), event_id=ids.new(), now=now
        )
