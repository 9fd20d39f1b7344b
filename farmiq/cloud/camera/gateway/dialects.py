"""Pure: the list of dialects, and which one a message or a camera speaks."""

from collections.abc import Callable

from farmiq.cloud.camera.gateway import esp32cam, standard, wire
from farmiq.cloud.camera.gateway.wire import Answer, Message, Place

READ: dict[str, Callable[[Place, bytes], Message]] = {
    standard.NAME: standard.read,
    esp32cam.NAME: esp32cam.read,
}
ANSWER: dict[str, Callable[[str, Answer], tuple[str, bytes] | None]] = {
    standard.NAME: standard.answer,
    esp32cam.NAME: esp32cam.answer,
}
ROOTS = {standard.ROOT: standard.NAME, esp32cam.ROOT: esp32cam.NAME}
# What the gateway listens to: answers and commands run the other way.
UP = tuple(f"{root}/+/{channel}" for root in ROOTS for channel in ("status", "data"))


def dialect_of(place: Place) -> str:
    try:
        return ROOTS[place.root]
    except KeyError:
        raise wire.Wrong([f"no camera's topic begins with {place.root[:40]!a}"]) from None


def publishes(mac: str) -> list[str]:
    """What a camera may publish on, however it writes its address."""
    return [
        f"{root}/{spelling}/{channel}"
        for root in ROOTS
        for spelling in wire.spellings(mac)
        for channel in ("status", "data")
    ]


def subscribes(mac: str) -> list[str]:
    return [
        f"{root}/{spelling}/{channel}"
        for root in ROOTS
        for spelling in wire.spellings(mac)
        for channel in ("ack", "cmd")
    ]
