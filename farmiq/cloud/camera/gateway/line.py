"""Pure: whose messages are taken next. A camera that sends much waits for the others.

What waits here has not been acknowledged, and each camera's messages keep their order.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from farmiq.cloud.camera.gateway import wire
from farmiq.cloud.camera.gateway.wire import Wrong
from farmiq.plumbing.mqtt import Message

# Of one camera in one transaction: an announcement costs as much as many chunks.
MOST_DEAR = 20


class Line:
    """Messages in hand, by camera."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Message]] = {}
        self._here: set[tuple[int, int]] = set()
        self._out: list[Message] = []
        self.count = self.bytes = 0

    def join(self, messages: Iterable[Message]) -> None:
        """At the end. What the broker sends again because we were slow is here once."""
        for one in messages:
            if one.qos and _delivery(one) in self._here:
                continue
            self._here.add(_delivery(one))
            self._waiting.setdefault(_camera(one.topic), deque()).append(one)
            self.count, self.bytes = self.count + 1, self.bytes + len(one.payload)

    def forget_but(self, connection: int) -> None:
        """What another connection brought comes again on this one, unless it came with QoS 0."""
        if any(each != connection for each, _ in self._here):
            stay = [one for each in self._waiting.values() for one in each]
            self._waiting, self._here, self.count, self.bytes = {}, set(), 0, 0
            self.join(one for one in stay if not one.qos or one.connection == connection)

    def take(self, *, most: int, most_bytes: int) -> list[Message]:
        """An equal share for each camera, then of those that wait for longest what has room."""
        taken: list[Message] = []
        left, dear = most_bytes, dict.fromkeys(self._waiting, MOST_DEAR)
        for share in (max(1, most // max(1, len(self._waiting))), most):
            for camera in list(self._waiting):
                mine = 0
                while len(taken) < most and left > 0 and mine < share and dear[camera]:
                    one = self._waiting[camera].popleft()
                    taken.append(one)
                    left, mine = left - len(one.payload), mine + 1
                    dear[camera] -= not is_chunk(one.payload)
                    if not self._waiting[camera]:
                        del self._waiting[camera]
                        break
        self._let_go(taken)
        self._out = taken
        return taken

    def settled(self) -> None:
        """What was taken is committed."""
        self._out = []

    def topics(self) -> Iterator[str]:
        """Of what is not committed yet."""
        yield from (one.topic for one in self._out)
        yield from (one.topic for each in self._waiting.values() for one in each)

    def _let_go(self, taken: list[Message]) -> None:
        """Whoever was served is last the next time."""
        self._here.difference_update(map(_delivery, taken))
        self.count -= len(taken)
        self.bytes -= sum(len(one.payload) for one in taken)
        for camera in dict.fromkeys(_camera(one.topic) for one in taken):
            if camera in self._waiting:
                self._waiting[camera] = self._waiting.pop(camera)


def is_chunk(raw: bytes) -> bool:
    """A guess that decides who waits, and nothing else."""
    return raw[:1] == b"\x01" or b'"chunk_id"' in raw


def _camera(topic: str) -> str:
    try:
        return wire.place(topic).mac
    except Wrong:
        return ""


def _delivery(one: Message) -> tuple[int, int]:
    return one.connection, one.packet_id
