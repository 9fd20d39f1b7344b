"""Pure: the firmware of a simulated battery camera: (camera, event, moment) → (camera, acts).

asleep --Woke--> HELLO, metadata, chunks --Sent--> waiting --Missing--> those chunks --Sent--> …
                                                      └--AckOk--> Delete, the next one or Sleep

It is fixed, as that of a bought camera: it knows 004 and nothing of us. An image stays on its card
until ACK_OK, however often the camera dies meanwhile. Between two images it listens for a moment
and hears no answer then, so one that was repeated is not taken for the next image's. Moments are
seconds of any clock that only goes forward.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, NamedTuple

Phase = Literal["asleep", "sending", "waiting", "listening"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the camera measured when it took a picture."""

    temperature: float
    humidity: float
    pressure: float
    gas_resistance: float
    battery_voltage: float
    wifi_rssi: int


@dataclass(frozen=True, slots=True)
class Image:
    """A picture on the card; `number` counts captures, names may repeat."""

    number: int
    name: str
    captured_at: datetime
    size: int
    chunk_bytes: int
    reading: Reading

    @property
    def total_chunks(self) -> int:
        return -(-self.size // self.chunk_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Firmware:
    """What cannot be changed any more, in seconds and times.

    One that volunteers sends what is left on its card although nobody asked; others wait for
    send_image.
    """

    answer_s: float = 20.0
    tries: int = 2
    listens_s: float = 0.5
    awake_s: float = 180.0
    volunteers: bool = True


# --- what happens to a camera


class Woke(NamedTuple):
    """A wake takes a picture; one by hand only delivers."""

    image: Image | None


class Captured(NamedTuple):
    """The picture that `Shoot` asked for."""

    image: Image


class Sent(NamedTuple):
    """All that was to be sent has left."""


class Passed(NamedTuple):
    """Time has."""


class Missing(NamedTuple):
    """Chunks that did not arrive, counted from 0; no name: those of the current image."""

    name: str | None
    chunks: tuple[int, ...]


class AckOk(NamedTuple):
    """An image may go from the card; without a name it answers HELLO (C-117)."""

    name: str | None
    next_wake: str | None


class SendImage(NamedTuple):
    name: str | None


class CaptureImage(NamedTuple):
    pass


class NextWake(NamedTuple):
    at: str


Answer = Missing | AckOk | SendImage | CaptureImage | NextWake
Event = Woke | Captured | Sent | Passed | Answer


# --- what it does


class Hello(NamedTuple):
    pending: int


class Metadata(NamedTuple):
    image: Image


class Chunk(NamedTuple):
    image: Image
    place: int


class Delete(NamedTuple):
    """Acknowledged: the picture goes from the card."""

    image: Image


class Shoot(NamedTuple):
    pass


class Sleep(NamedTuple):
    next_wake: str | None


Frame = Hello | Metadata | Chunk
Act = Frame | Delete | Shoot | Sleep
Acts = tuple[Act, ...]


@dataclass(frozen=True, slots=True)
class Camera:
    """`card` holds what was not acknowledged, oldest first; `queue` numbers of what comes next."""

    firmware: Firmware = field(default_factory=Firmware)
    card: tuple[Image, ...] = ()
    phase: Phase = "asleep"
    current: Image | None = None
    queue: tuple[int, ...] = ()
    tried: frozenset[int] = frozenset()
    tries: int = 0
    until: float = 0.0
    sleeps_at: float = 0.0
    next_wake: str | None = None

    @property
    def patient_until(self) -> float:
        """When it does something without a command."""
        return min(self.until, self.sleeps_at)


def step(camera: Camera, event: Event, *, at: float) -> tuple[Camera, Acts]:
    """What the camera does next, and what it sends."""
    if isinstance(event, Woke):
        return _wake(camera, event.image, at)
    if camera.phase == "asleep":
        return camera, ()
    if isinstance(event, Sent):
        return _sent(camera, at)
    if isinstance(event, Passed):
        return _passed(camera, at)
    if isinstance(event, Captured):
        return _queued(_with(camera, event.image), event.image), ()
    return _instructed(camera, event, at)


def _wake(camera: Camera, image: Image | None, at: float) -> tuple[Camera, Acts]:
    hello = Hello(len(camera.card))
    woken = replace(
        camera,
        phase="listening",
        current=None,
        queue=() if image is None else (image.number,),
        tried=frozenset(),
        until=at + camera.firmware.listens_s,
        sleeps_at=at + camera.firmware.awake_s,
        next_wake=None,
    )
    if image is None:
        return woken, (hello,)
    started, acts = _next(_with(woken, image), at)
    return started, (hello, *acts)


def _with(camera: Camera, image: Image) -> Camera:
    return replace(camera, card=(*camera.card, image))


def _queued(camera: Camera, image: Image) -> Camera:
    known = image.number in camera.queue or image == camera.current
    return camera if known else replace(camera, queue=(*camera.queue, image.number))


def _sent(camera: Camera, at: float) -> tuple[Camera, Acts]:
    if camera.phase != "sending":
        return camera, ()
    return replace(camera, phase="waiting", until=at + camera.firmware.answer_s), ()


def _passed(camera: Camera, at: float) -> tuple[Camera, Acts]:
    if at >= camera.sleeps_at:
        return _sleep(camera)
    if camera.phase == "sending" or at < camera.until:
        return camera, ()
    if camera.phase == "listening":
        return _next(camera, at)
    if camera.current is not None and camera.tries < camera.firmware.tries:
        return _begin(camera, camera.current, tries=camera.tries + 1)
    return _listen(camera, at)


def _instructed(camera: Camera, answer: Answer, at: float) -> tuple[Camera, Acts]:
    match answer:
        case SendImage(name):
            image = next(
                (stored for stored in camera.card if name in (None, "", stored.name)), None
            )
            return (camera if image is None else _queued(camera, image)), ()
        case CaptureImage():
            return camera, (Shoot(),)
        case NextWake(moment):
            return replace(camera, next_wake=moment), ()
    return _answered(camera, answer, at)


def _answered(camera: Camera, answer: Missing | AckOk, at: float) -> tuple[Camera, Acts]:
    current = camera.current
    if camera.phase != "waiting" or current is None:
        return camera, ()
    if isinstance(answer, AckOk):
        is_mine = answer.name == current.name
        return _acknowledged(camera, current, answer.next_wake, at) if is_mine else (camera, ())
    is_mine = answer.name in (None, "", current.name)
    return _again(camera, current, answer.chunks) if is_mine else (camera, ())


def _again(camera: Camera, image: Image, chunks: tuple[int, ...]) -> tuple[Camera, Acts]:
    wanted = tuple(Chunk(image, number) for number in chunks if 0 <= number < image.total_chunks)
    return (replace(camera, phase="sending"), wanted) if wanted else (camera, ())


def _acknowledged(
    camera: Camera, image: Image, next_wake: str | None, at: float
) -> tuple[Camera, Acts]:
    card = tuple(other for other in camera.card if other.number != image.number)
    acknowledged = replace(camera, card=card, next_wake=next_wake or camera.next_wake)
    after, acts = _listen(acknowledged, at)
    return after, (Delete(image), *acts)


def _listen(camera: Camera, at: float) -> tuple[Camera, Acts]:
    """Between two images, if there is one more."""
    resting = replace(camera, phase="listening", current=None, until=at + camera.firmware.listens_s)
    return (resting, ()) if resting.card else _sleep(resting)


def _next(camera: Camera, at: float) -> tuple[Camera, Acts]:
    if at >= camera.sleeps_at:
        return _sleep(camera)
    card = {image.number: image for image in camera.card}
    queue = tuple(image for image in camera.queue if image in card)
    if queue:
        return _begin(replace(camera, queue=queue[1:]), card[queue[0]], tries=1)
    left = [image for image in camera.card if image.number not in camera.tried]
    if left and camera.firmware.volunteers:
        return _begin(camera, left[0], tries=1)
    return _sleep(camera)


def _begin(camera: Camera, image: Image, *, tries: int) -> tuple[Camera, Acts]:
    started = replace(
        camera, phase="sending", current=image, tries=tries, tried=camera.tried | {image.number}
    )
    chunks = (Chunk(image, index) for index in range(image.total_chunks))
    return started, (Metadata(image), *chunks)


def _sleep(camera: Camera) -> tuple[Camera, Acts]:
    asleep = replace(camera, phase="asleep", current=None, queue=(), tries=0)
    return asleep, (Sleep(camera.next_wake),)


def cut(camera: Camera) -> Camera:
    """The battery gave way: all is forgotten but the card."""
    return _sleep(camera)[0]


def with_image(camera: Camera, image: Image) -> Camera:
    """Add a picture that was taken without a connection."""
    return _with(camera, image)
