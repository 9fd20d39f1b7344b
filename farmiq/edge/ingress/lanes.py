"""Pure: who writes what. Messages of one device all go to the same writer, in order (C-81)."""

from collections.abc import Sequence
from typing import Protocol, TypeVar
from zlib import crc32

# In every topic of ours these stand at the same places: iot/{kind}/{tenant}/{farm}/{barn}/{device}.
_TENANT, _DEVICE = 2, 5


class _Sent(Protocol):
    @property
    def topic(self) -> str: ...


Sent = TypeVar("Sent", bound=_Sent)


def share(messages: Sequence[Sent], writers: int) -> dict[int, list[Sent]]:
    """Each writer's part; writers without one are left out.

    A station's sessions count as a device of their own: their topic does not name the device.
    Whatever two writers may both touch is locked in the order of its key, so that neither waits
    for the other in a circle.
    """
    if writers == 1:
        return {0: list(messages)} if messages else {}
    known: dict[str, int] = {}
    parts: dict[int, list[Sent]] = {}
    for message in messages:
        topic = message.topic
        writer = known.get(topic)
        if writer is None:
            writer = known[topic] = lane(topic, writers)
        parts.setdefault(writer, []).append(message)
    return parts


def lane(topic: str, writers: int) -> int:
    """Which writer takes a topic: the same on every run, whatever the topic looks like."""
    levels = topic.split("/", _DEVICE + 1)
    sender = "/".join((*levels[_TENANT : _TENANT + 1], *levels[_DEVICE : _DEVICE + 1]))
    return crc32(sender.encode("utf-8", "surrogatepass")) % writers
