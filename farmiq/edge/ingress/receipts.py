"""Receipts: the answers to devices, collected for a moment, one message per device (C-91).

A device whose receipt is lost only sends its events again. So nothing waits for receipts, and they
are dropped when too many wait.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from farmiq.edge.ingress.store import Outcome
from farmiq.messages import check, receipt, topics
from farmiq.messages.topics import EventTopic, Place, SessionTopic, StatusTopic, TelemetryTopic
from farmiq.plumbing import ids
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.messaging.stream import LostError

# Waiting makes fewer and larger receipts.
LINGER_S = 0.2
MAX_WAITING = 20_000
# An id takes 39 bytes of JSON, a reason up to 500: a receipt stays below the limit of a message.
MAX_IDS = 2_000
MAX_REJECTED = 200

AtStation = Callable[[SessionTopic], Place | None]
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
            await self.send_pending()

    async def send_pending(self) -> None:
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


def by_sender(
    outcome: Outcome, at_station: AtStation = lambda _: None
) -> dict[Place, tuple[tuple[UUID, ...], dict[UUID, str]]]:
    """For each device: stored ids, and rejected ids with the reason."""
    stored: dict[Place, list[UUID]] = defaultdict(list)
    rejected: dict[Place, dict[UUID, str]] = defaultdict(dict)
    for arrival in outcome.stored:
        stored[arrival.place].append(arrival.event.event_id)
    for message in outcome.rejected:
        sender = sender_and_id(message.topic, message.raw, at_station)
        if sender is not None:
            rejected[sender[0]][sender[1]] = "; ".join(message.reasons)[:500]
    return {place: (tuple(stored[place]), rejected[place]) for place in {*stored, *rejected}}


def sender_and_id(
    topic: str, raw: bytes, at_station: AtStation = lambda _: None
) -> tuple[Place, UUID] | None:
    """Who gets the receipt of a rejected message, if the message says that.

    The topic of a session names a station; `at_station` returns the device that is registered
    there. The body is not used: a receipt must not stop the retries of another device.
    """
    event_id = _event_id(raw)
    if event_id is None:
        return None
    try:
        parsed: topics.Topic | None = topics.parse(topic)
    except check.InvalidError:
        parsed = topics.sender(topic)
    match parsed:
        case TelemetryTopic(place) | EventTopic(place) | StatusTopic(place):
            return place, event_id
        case SessionTopic():
            device = at_station(parsed)
            return (device, event_id) if device else None
        case _:
            return None


def _event_id(raw: bytes) -> UUID | None:
    """The event id, also if the rest is no JSON; None if there is more than one."""
    try:
        return _id_decoder.decode(raw).event_id
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        written_ids = {*_WRITTEN_ID.findall(raw)}
    return UUID(written_ids.pop().decode()) if len(written_ids) == 1 else None


_WRITTEN_ID = re.compile(
    rb'"event_id"\s*:\s*"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"'
)


class _IdOnly(msgspec.Struct):
    event_id: UUID


_id_decoder = msgspec.json.Decoder(_IdOnly)
