"""Receipts: what devices are told, a moment's worth at a time, one message per device (C-91).

They speed a device up; one that is lost only means that the device asks again. So nothing waits
for them, and they are dropped when they pile up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from uuid import UUID

from farmiq.messages import receipt, topics
from farmiq.messages.topics import Place
from farmiq.plumbing import ids, mqtt
from farmiq.plumbing.stream import LostError

# Each receipt is a message to be sent and read: fewer of them, a little later.
LINGER_S = 0.2
MAX_WAITING = 20_000
# An id takes 39 bytes of JSON, a reason up to 500: a receipt stays a message that may be sent.
MAX_IDS = 2_000
MAX_REFUSED = 200

# For each device: which ids are stored, and which are refused and why.
Publish = Callable[[str, bytes], Awaitable[None]]
# Nobody knows whether the broker has it.
_LOST = (mqtt.DisconnectedError, LostError)

Told = Mapping[Place, tuple[tuple[UUID, ...], Mapping[UUID, str]]]


class Receipts:
    """`wanted` says which devices ask for any."""

    def __init__(
        self, publish: Publish, *, wanted: Callable[[Place], bool] = lambda _: True
    ) -> None:
        self._publish, self._wanted = publish, wanted
        self._stored: dict[Place, list[UUID]] = {}
        self._refused: dict[Place, dict[UUID, str]] = {}
        self._waiting = 0
        self._added = asyncio.Event()

    def add(self, told: Told) -> None:
        for place, (stored, refused) in told.items():
            count = len(stored) + len(refused)
            if self._wanted(place) and self._waiting + count <= MAX_WAITING:
                self._stored.setdefault(place, []).extend(stored)
                self._refused.setdefault(place, {}).update(refused)
                self._waiting += count
                self._added.set()

    async def keep_sending(self) -> None:
        while True:
            await self._added.wait()
            await asyncio.sleep(LINGER_S)
            await self._send()

    async def _send(self) -> None:
        """What waits; what is added meanwhile waits for the next time."""
        self._added.clear()
        stored, refused = self._stored, self._refused
        self._stored, self._refused, self._waiting = {}, {}, 0
        sending = [
            self._publish(topics.receipts(place), raw)
            for place in stored
            for raw in _written(place, stored[place], refused[place])
        ]
        for result in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, _LOST):
                raise result


def _written(place: Place, stored: list[UUID], refused: dict[UUID, str]) -> Iterator[bytes]:
    """One receipt, or as many as their length asks for."""
    now, reasons = datetime.now(UTC), [*refused.items()]
    while stored or reasons:
        part, some = stored[:MAX_IDS], reasons[:MAX_REFUSED]
        stored, reasons = stored[MAX_IDS:], reasons[MAX_REFUSED:]
        yield receipt.write(
            place, stored=tuple(part), refused=dict(some), event_id=ids.new(), now=now
        )
