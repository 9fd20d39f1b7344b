"""Pure: whose messages are taken next, and in which order.

A camera that sends much waits for the others, and each camera's messages keep the order in which
they were sent: names are used twice, so an old announcement after a new one would be taken for the
camera's next image. What waits here has not been acknowledged.

The broker brings again, a while later and after newer messages, what was not acknowledged in time:

- On the same connection that is a copy of what is here, or was: it is left out.
- To a new connection it brings what the last one left, in any order, among newer messages. Nothing
  is taken until all of that should have come: first what was left, by the numbers that the broker
  gave it when it first sent it, then what is new.
- What comes later still, when newer messages of its camera were taken, is stale: it is dropped,
  since the camera repeats whatever was not answered.
- What a camera lets the broker keep (retain) comes with every subscription, however old: it was
  taken when it was said, and is stale.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeVar

from farmiq.cloud.camera.gateway import wire
from farmiq.cloud.camera.gateway.wire import Wrong
from farmiq.plumbing.mqtt import Message

K = TypeVar("K")
V = TypeVar("V")

# Of one camera in one transaction: an announcement costs as much as many chunks.
MOST_DEAR = 20
# Deliveries of a connection that are known again: more than can be unacknowledged at once.
MOST_KNOWN = 10_000
PACKET_IDS = 65_535


class Line:
    """Messages in hand, by camera."""

    def __init__(self) -> None:
        self._connection = -1
        self._settled_at = 0.0
        self._in_order = True
        self._left: dict[str, deque[Message]] = {}
        self._new: dict[str, deque[Message]] = {}
        self._known: dict[int, int] = {}
        self._first_new: int | None = None
        self._went_on: dict[str, None] = {}
        self._stale: list[Message] = []
        self._out: list[Message] = []
        self.count = self.bytes = self.taken = 0

    def connected(self, connection: int, *, settled_at: float) -> None:
        """What another connection brought comes again on this one, unless it came with QoS 0.

        `settled_at`: when all that the last connection left should have come.
        """
        if settled_at != self._settled_at:
            self._settled_at, self._in_order = settled_at, False
        if connection == self._connection:
            return
        stay = [one for each in self._new.values() for one in each if not one.qos]
        self._connection, self._first_new = connection, None
        self._left, self._new, self._known, self._went_on = {}, {}, {}, {}
        self._stale, self.count, self.bytes = [], 0, 0
        self.join(stay)

    def settles_for(self, now: float) -> float:
        """Seconds for which what the last connection left may still come."""
        return max(0.0, self._settled_at - now)

    def join(self, messages: Iterable[Message]) -> None:
        """At the end; what comes again is here once."""
        for one in messages:
            if one.retained:
                self._stale.append(one)
                continue
            camera = _camera(one.topic)
            if one.repeated and self._known.get(one.packet_id) == _content(one):
                continue
            if one.qos:
                _remember(self._known, one.packet_id, _content(one))
            was_left = one.repeated and not (self._in_order and self._is_of_this_connection(one))
            if was_left and camera in self._went_on:
                self._stale.append(one)
                continue
            if one.qos and not one.repeated and self._first_new is None:
                self._first_new = one.packet_id
            part = self._left if was_left else self._new
            part.setdefault(camera, deque()).append(one)
            self.count, self.bytes = self.count + 1, self.bytes + len(one.payload)

    def _is_of_this_connection(self, one: Message) -> bool:
        """The broker may hold back what is too much, and bring it a first time as if again.

        Not asked while what was left may come: a broker that was restarted numbers it anew.
        """
        first = self._first_new
        return first is not None and (one.packet_id - first) % PACKET_IDS < PACKET_IDS // 2

    def stale(self) -> list[Message]:
        """What was dropped since this was asked: the broker may forget it."""
        found, self._stale = self._stale, []
        return found

    def take(self, *, most: int, most_bytes: int, now: float) -> list[Message]:
        """An equal share for each camera, then of those that wait for longest what has room.

        Nothing, while what the last connection left may still come.
        """
        if now < self._settled_at:
            return []
        self._put_in_order()
        taken: list[Message] = []
        waiting = dict.fromkeys([*self._left, *self._new])
        left, dear = most_bytes, dict.fromkeys(waiting, MOST_DEAR)
        for share in (max(1, most // max(1, len(waiting))), most):
            for camera in waiting:
                mine = 0
                while len(taken) < most and left > 0 and mine < share and dear[camera]:
                    one = self._next_of(camera)
                    if one is None:
                        break
                    taken.append(one)
                    left, mine = left - len(one.payload), mine + 1
                    dear[camera] -= not wire.is_chunk(one.payload)
        self._let_go(taken)
        self._out = taken
        return taken

    def _put_in_order(self) -> None:
        """What was left, once: what comes later is not sorted in."""
        if not self._in_order:
            ranks = _ranks(one.packet_id for each in self._left.values() for one in each)
            for camera, left in self._left.items():
                self._left[camera] = deque(sorted(left, key=lambda one: ranks[one.packet_id]))
            self._in_order = True

    def _next_of(self, camera: str) -> Message | None:
        if camera in self._left:
            return _popped(self._left, camera)
        if camera not in self._new:
            return None
        one = _popped(self._new, camera)
        if one.qos:
            # QoS 0 may be taken while there is no connection, before what the last one left comes.
            _remember(self._went_on, camera, None)
        return one

    def settled(self) -> None:
        """What was taken is committed."""
        self.taken += len(self._out)
        self._out = []

    def topics(self) -> Iterator[str]:
        """Of what is not committed yet."""
        yield from (one.topic for one in self._out)
        for part in (self._left, self._new):
            yield from (one.topic for each in part.values() for one in each)

    def _let_go(self, taken: list[Message]) -> None:
        """Whoever was served is last the next time."""
        self.count -= len(taken)
        self.bytes -= sum(len(one.payload) for one in taken)
        for camera in dict.fromkeys(_camera(one.topic) for one in taken):
            for part in (self._left, self._new):
                if camera in part:
                    part[camera] = part.pop(camera)


def _ranks(packet_ids: Iterable[int]) -> dict[int, int]:
    """Where each number stands. They begin again after the largest: the widest gap is the start."""
    found = sorted(set(packet_ids))
    gaps = [(each - before) % PACKET_IDS for before, each in pairwise([*found[-1:], *found])]
    start = gaps.index(max(gaps)) if gaps else 0
    return {each: rank for rank, each in enumerate([*found[start:], *found[:start]])}


def _popped(part: dict[str, deque[Message]], camera: str) -> Message:
    one = part[camera].popleft()
    if not part[camera]:
        del part[camera]
    return one


def _remember(known: dict[K, V], key: K, value: V) -> None:
    """The last ones of many."""
    known.pop(key, None)
    known[key] = value
    if len(known) > MOST_KNOWN:
        del known[next(iter(known))]


def _content(one: Message) -> int:
    return hash((one.topic, one.payload))


def _camera(topic: str) -> str:
    try:
        return wire.place(topic).mac
    except Wrong:
        return ""
