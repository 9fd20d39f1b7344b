"""A fleet of battery cameras over real MQTT: each wakes, connects, delivers and sleeps again.

pictures --> card (files) --> camera.step --frames--> through_air --> broker
journal <-- captured, acked                └<-- device/{mac}/ack, cmd

A picture is in memory only while it is on its way: 200 cameras need no more than their connections.
"""

import asyncio
import contextlib
import hashlib
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from farmiq.lab.simulate import camera, camera_faults, camera_wire, pictures
from farmiq.lab.simulate.camera import (
    Act,
    Camera,
    Captured,
    Chunk,
    Delete,
    Event,
    Firmware,
    Frame,
    Hello,
    Image,
    Metadata,
    Passed,
    Sent,
    Shoot,
    Woke,
)
from farmiq.lab.simulate.camera_faults import Faults, Kit
from farmiq.lab.simulate.captures import Entry
from farmiq.lab.simulate.journal import Journal
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.messaging.mqtt_address import login_url

CONNECT_S = 30.0
# How soon it is noticed that the broker went away.
TICK_S = 1.0
# Drawing takes the processor: a fleet that wakes at once must not draw all at once.
MAX_DRAWING = 2

# Says why an image that was just acknowledged cannot be read back, or None.
Witness = Callable[[str, Image, str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """`every_s` None: cameras sleep until the next_wake that they received, as real ones do."""

    every_s: float | None = 5.0
    between_frames_s: float = 0.0
    qos: int = 1
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))


class CameraDiedError(Exception):
    """The battery gave way."""


class SimulatedCamera:
    def __init__(
        self,
        kit: Kit,
        url: str,
        folder: Path,
        journal: Journal,
        *,
        faults: Faults | None = None,
        timing: Timing | None = None,
        firmware: Firmware | None = None,
        witness: Witness | None = None,
        drawing: asyncio.Semaphore | None = None,
    ) -> None:
        self.kit, self._url = kit, url
        self._card = folder / kit.mac
        self._journal = journal
        self._faults, self._timing = faults or Faults(), timing or Timing()
        self._witness = witness
        self._drawing = drawing or asyncio.Semaphore(MAX_DRAWING)
        self.camera = Camera(firmware or Firmware())
        self._powered_at = self._timing.now()
        self._last_at: datetime | None = None
        self._captures = 0
        self._passes = itertools.count()
        self._sha256s: dict[int, str] = {}
        self._to_send: deque[Frame] = deque()
        self._data: tuple[int, bytes] = (-1, b"")
        self._taken: Image | None = None
        self._announced: set[int] = set()
        self.wakes = 0

    @property
    def waiting(self) -> int:
        return len(self.camera.card)

    @property
    def stranded(self) -> int:
        """Images on the card that neither the camera sends by itself nor anybody can ask for.

        An esp32cam is asked by name alone, and a name that was never announced is unknown.
        """
        if self.camera.firmware.volunteers or self.kit.speech.dialect != "esp32cam":
            return 0
        return sum(image.number not in self._announced for image in self.camera.card)

    @property
    def is_awake(self) -> bool:
        return self.camera.phase != "asleep"

    # --- its days

    async def prepare(self) -> None:
        """The first picture before the first wake: a fleet draws slower than it connects."""
        self._taken = await self.take_image()

    async def live(self, *, wakes: int | None, phase_s: float = 0.0) -> None:
        """So many wakes, with a picture each; a looping camera has its extra ones besides."""
        await asyncio.sleep(phase_s)
        left = self._faults.loop_wakes if self.kit.loops else 0
        for number in itertools.count() if wakes is None else range(wakes):
            if number:
                await asyncio.sleep(self._sleeps_s())
            await self.wake()
            while left:
                left -= 1
                await self.wake()

    async def deliver(self, *, pause_s: float = 0.5) -> None:
        """Wakes by hand, without a picture, until nothing is left on the card.

        What nobody can ask for stays there.
        """
        while self.waiting > self.stranded:
            await self.wake(capture=False)
            if self.waiting:
                await asyncio.sleep(pause_s)

    def _sleeps_s(self) -> float:
        if self._timing.every_s is not None:
            return self._timing.every_s
        now = self._timing.now()
        until = instant(self.camera.next_wake, now=now, zone=ZoneInfo(self.kit.timezone))
        return 60.0 if until is None else max(1.0, (until - now).total_seconds())

    async def wake(self, *, capture: bool = True) -> None:
        """One wake to its end, be it sleep, death or a broker that is not there."""
        self.wakes += 1
        image = self._taken or (await self.take_image() if capture else None)
        self._taken = None
        self._note("woke", pending=len(self.camera.card))
        try:
            async with asyncio.timeout(self.camera.firmware.awake_s + CONNECT_S):
                await self._connected(Woke(image))
        except CameraDiedError:
            self._note("died")
        except (mqtt.DisconnectedError, TimeoutError, OSError) as error:
            self._note("gave_up", why=str(error) or type(error).__name__)
        finally:
            if image is not None and image not in self.camera.card and self._has(image):
                self.camera = camera.with_image(self.camera, image)
            self.camera = camera.cut(self.camera)
            self._to_send.clear()
            self._data = (-1, b"")

    async def _connected(self, woke: Woke) -> None:
        async with mqtt.connected(
            self._url,
            client_id=f"camera-{self.kit.mac}",
            topics=camera_wire.listens(self.kit.speech),
            subscribe_qos=self._timing.qos,
            persistent_session=False,
            max_waiting=100,
            backoff=Backoff(base_s=0.5, cap_s=5.0),
        ) as broker:
            async with asyncio.timeout(CONNECT_S):
                await broker.until_up()
            connection = broker.connection
            await self._happens(woke)
            dies_after = self._dies_after()
            while self.is_awake:
                if broker.connection != connection:
                    raise mqtt.DisconnectedError("the broker went away")
                dies_after = await self._send(broker, dies_after)
                await self._happens(Sent() if self.camera.phase == "sending" else Passed())
                if not self._to_send and self.is_awake:
                    await self._listen(broker)

    def _dies_after(self) -> int | None:
        words = (self.kit.mac, self.wakes)
        return camera_faults.dies_after(self._faults, *words, frames=len(self._to_send))

    # --- the machine and the world

    async def _happens(self, event: Event) -> None:
        self.camera, acts = camera.step(self.camera, event, at=time.monotonic())
        frames = [act for act in acts if isinstance(act, (Hello, Metadata, Chunk))]
        words = (self.kit.mac, next(self._passes))
        self._to_send.extend(camera_faults.through_air(frames, self._faults, *words))
        for act in acts:
            await self._do(act)

    async def _do(self, act: Act) -> None:
        if isinstance(act, Delete):
            await self._delete(act.image)
        elif isinstance(act, Shoot):
            await self._happens(Captured(await self.take_image()))

    async def _send(self, broker: mqtt.Client, dies_after: int | None) -> int | None:
        """All that is to go; returns how many frames the battery still gives."""
        while self._to_send:
            if dies_after == 0:
                broker.drop()
                raise CameraDiedError
            frame = self._to_send.popleft()
            data = b"" if isinstance(frame, Hello) else self._read(frame.image)
            topic, raw = camera_wire.encode(self.kit.speech, frame, data)
            await broker.publish(topic, raw, qos=self._timing.qos)
            if isinstance(frame, Metadata):
                self._announced.add(frame.image.number)
            dies_after = None if dies_after is None else dies_after - 1
            await asyncio.sleep(self._timing.between_frames_s)
        return dies_after

    async def _listen(self, broker: mqtt.Client) -> None:
        messages: list[mqtt.Message] = []
        left_s = self.camera.patient_until - time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(left_s, 0.0), TICK_S)):
                messages = await broker.batch(max_messages=20, linger_s=0.0)
        broker.ack(messages)
        for message in messages:
            answer = camera_wire.decode(self.kit.speech, message.payload)
            if answer is not None:
                await self._happens(answer)

    # --- the card

    async def take_image(self) -> Image:
        """A picture on the card, and in the journal, before anything of it leaves."""
        self._captures += 1
        number, at = self._captures, self._clock()
        async with self._drawing:
            data = await asyncio.to_thread(
                pictures.dish, camera_id=self.kit.mac, number=number, at=at, seed=self._faults.seed
            )
        self._card.mkdir(parents=True, exist_ok=True)
        image = Image(
            number,
            camera_faults.image_name(self.kit, number),
            at,
            len(data),
            self.kit.chunk_bytes,
            camera_faults.measured(
                self.kit, number=number, seed=self._faults.seed, wakes=self.wakes
            ),
        )
        self._path(image).write_bytes(data)
        sha256 = self._sha256s[number] = hashlib.sha256(data).hexdigest()
        self._note("captured", image=image, sha256=sha256)
        await self._journal.on_disk()
        return image

    def _clock(self) -> datetime:
        """Whole seconds, and never the same twice: a camera's pictures are further apart."""
        now = camera_faults.clock(self.kit, now=self._timing.now(), powered_at=self._powered_at)
        if self._last_at is not None and now <= self._last_at:
            now = self._last_at + timedelta(seconds=1)
        self._last_at = now
        return now

    def _read(self, image: Image) -> bytes:
        if self._data[0] != image.number:
            self._data = (image.number, self._path(image).read_bytes())
        return self._data[1]

    async def _delete(self, image: Image) -> None:
        sha256 = self._sha256s.pop(image.number)
        self._announced.discard(image.number)
        if self._witness is not None:
            problem = await self._witness(self.kit.mac, image, sha256)
            if problem is not None:
                self._note("unreadable", image=image, why=problem)
        self._note("acked", image=image)
        self._path(image).unlink()

    def _has(self, image: Image) -> bool:
        return self._path(image).exists()

    def _path(self, image: Image) -> Path:
        return self._card / f"{image.number}.jpg"

    def _note(
        self, act: str, *, image: Image | None = None, sha256: str = "", **more: object
    ) -> None:
        about = {} if image is None else {
            "number": image.number, "name": image.name, "captured_at": image.captured_at,
            "size": image.size, "sha256": sha256,
        }  # fmt: skip
        line = Entry(act=act, mac=self.kit.mac, at=datetime.now(UTC), **about, **more)  # type: ignore[arg-type]
        self._journal.note(line)


def instant(text: str | None, *, now: datetime, zone: ZoneInfo) -> datetime | None:
    """A moment, or a time of day such as 5:30PM: the next one where the camera stands."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return _time_of_day(text or "", now=now.astimezone(zone))
    return moment if moment.tzinfo else None


def _time_of_day(text: str, *, now: datetime) -> datetime | None:
    try:
        # Its own zone is the camera's.
        time_of_day = datetime.strptime(text, "%I:%M%p").time()  # noqa: DTZ007
    except ValueError:
        return None
    days = (
        datetime.combine(now.date() + timedelta(days=n), time_of_day, now.tzinfo) for n in (0, 1)
    )
    return next((moment for moment in days if moment > now), None)


def cameras(
    kits: Iterable[Kit],
    url: str,
    folder: Path,
    journal: Journal,
    *,
    faults: Faults,
    timing: Timing | None = None,
    firmware: Firmware | None = None,
    witness: Witness | None = None,
    logins: Mapping[str, tuple[str, str]] | None = None,
) -> list[SimulatedCamera]:
    """`logins` are user and password by MAC; without them all use what the address says."""
    drawing = asyncio.Semaphore(MAX_DRAWING)
    return [
        SimulatedCamera(
            kit, _url_of(kit, url, logins or {}), folder, journal, faults=faults,
            timing=timing, firmware=firmware, witness=witness, drawing=drawing,
        )
        for kit in kits
    ]  # fmt: skip


def _url_of(kit: Kit, url: str, logins: Mapping[str, tuple[str, str]]) -> str:
    return login_url(*logins[kit.mac], url=url) if kit.mac in logins else url


async def simulate(
    fleet: list[SimulatedCamera], *, wakes: int | None, spread_s: float = 0.0
) -> None:
    """All at once, or spread; then wakes by hand until every card is empty."""
    if not spread_s:
        await asyncio.gather(*(simulated.prepare() for simulated in fleet))
    async with asyncio.TaskGroup() as group:
        for number, simulated in enumerate(fleet):
            group.create_task(_whole_life(simulated, wakes, spread_s * number / len(fleet)))


async def _whole_life(simulated: SimulatedCamera, wakes: int | None, phase_s: float) -> None:
    await simulated.live(wakes=wakes, phase_s=phase_s)
    await simulated.deliver()
