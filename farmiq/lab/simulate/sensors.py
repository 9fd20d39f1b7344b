"""Simulated sensors over real MQTT: each keeps a reading until the broker has acknowledged it.

A sensor whose link is cut sends what it was not told about again, byte for byte, so repeats reach
the edge, as they do from real devices. It says how it is, leaves a last will, and obeys two
commands: `ping`, and `set_interval` with {"seconds": …}.
"""

import asyncio
import contextlib
import itertools
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import msgspec

from farmiq.lab.simulate import farm, link
from farmiq.lab.simulate.farm import Device, Sending
from farmiq.lab.simulate.journal import Journal
from farmiq.messages import device as words
from farmiq.messages import envelope, receipt, topics
from farmiq.messages.ids import broker_user
from farmiq.plumbing import ids
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.messaging.mqtt_address import login_url

# When its time is over a farm delivers what it has; when it is interrupted it does not linger.
DRAIN_S = 30.0
DRAIN_INTERRUPTED_S = 2.0
HEARTBEAT_S = 30.0
MAX_ASIDES = 10_000

# (tenant_id, device_id) → (user, password)
Logins = Mapping[tuple[str, str], tuple[str, str]]


class Sensor:
    """`measure` adds readings, `send` delivers them in order; both run side by side."""

    def __init__(
        self, device: Device, journal: Journal, *, interval_s: float, day_s: float
    ) -> None:
        self._device, self._journal = device, journal
        self._interval_s, self._day_s = interval_s, day_s
        self._unsent: deque[Sending] = deque()
        self._added = asyncio.Event()
        self._seq = 0
        # What the journal does not know of: statuses and answers.
        self._unjournaled_ids: deque[UUID] = deque(maxlen=MAX_ASIDES)
        self._obeyed: deque[str] = deque(maxlen=MAX_ASIDES)

    @property
    def waiting(self) -> int:
        return len(self._unsent)

    async def measure(self) -> None:
        await asyncio.sleep(random.random() * self._interval_s)
        for number in itertools.count():
            for metric in self._device.metrics:
                self._add(partial(farm.message, self._device, metric, day_s=self._day_s))
            for habit in self._device.habits:
                if number % habit.every == 0:
                    self._add(partial(farm.happening, self._device, habit))
            await asyncio.sleep(self._interval_s * random.uniform(0.9, 1.1))

    async def send(self, url: str) -> None:
        place = self._device.place
        async with (
            mqtt.connected(
                url,
                client_id=f"{broker_user(place.tenant_id, place.device_id)}/{ids.new().hex[-8:]}",
                topics=[topics.receipts(place), topics.command(place, "#")],
                persistent_session=False,
                will=mqtt.Will(topics.status(place), lambda: self._status("offline")),
                backoff=Backoff(base_s=0.2, cap_s=2.0),
            ) as broker,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._send_in_order(broker))
            group.create_task(self._listen(broker))
            group.create_task(self._say_how_it_is(broker))

    def _add(self, make: Callable[..., Sending]) -> None:
        self._seq += 1
        sending = make(
            at=datetime.now(UTC), event_id=ids.new(), seq=self._seq, chance=random.random()
        )
        self._unsent.append(sending)
        self._added.set()

    async def _send_in_order(self, broker: mqtt.Client) -> None:
        while True:
            await self._until_something()
            await self._send_one(broker, self._unsent[0])
            self._unsent.popleft()

    async def _send_one(self, broker: mqtt.Client, sending: Sending) -> None:
        """Until the broker has it; the journal knows of it before the first byte leaves."""
        event_id = str(sending.event_id)
        self._journal.write("sent", event_id, sending.content)
        await self._journal.on_disk()
        while True:
            await broker.until_up()
            try:
                await broker.publish(sending.topic, sending.raw)
            except mqtt.DisconnectedError:
                self._journal.write("unknown", event_id)
                await asyncio.sleep(0.05)
            else:
                self._journal.write("ok", event_id)
                return

    async def _until_something(self) -> None:
        while not self._unsent:
            self._added.clear()
            await self._added.wait()

    async def _listen(self, broker: mqtt.Client) -> None:
        while True:
            messages = await broker.batch(max_messages=100, linger_s=0.0)
            for message in messages:
                where, payload = topics.parse(message.topic), envelope.read(message.payload).payload
                if isinstance(where, topics.CommandTopic):
                    await self._obey(broker, where.command, payload)
                else:
                    self._note_receipt(payload)
            broker.ack(messages)

    def _note_receipt(self, payload: msgspec.Raw) -> None:
        answer = receipt.read(payload)
        for event_id in answer.event_ids:
            if event_id not in self._unjournaled_ids:
                self._journal.write("stored", str(event_id))
        for rejection in answer.rejected:
            if rejection.event_id not in self._unjournaled_ids:
                self._journal.write("refused", str(rejection.event_id))

    async def _obey(self, broker: mqtt.Client, name: str, payload: msgspec.Raw) -> None:
        """Once, and not after its time; the answer is repeated if the command is."""
        command = msgspec.json.decode(payload, type=words.DeviceCommand)
        over = isinstance(command.expires_at, datetime) and command.expires_at < datetime.now(UTC)
        if over and command.command_id not in self._obeyed:
            return
        self._obeyed.append(command.command_id)
        outcome, message = self._do(name, command.args)
        answer = words.DeviceCommandAnswered(
            command_id=command.command_id, outcome=outcome, message=message
        )
        topic = topics.event(self._device.place, words.COMMAND_ANSWERED)
        with contextlib.suppress(mqtt.DisconnectedError):
            await broker.publish(topic, self._unjournaled(words.COMMAND_ANSWERED, answer))

    def _do(self, name: str, args: dict[str, Any]) -> tuple[Any, str]:
        if name == "ping":
            return "applied", "pong"
        if name == "set_interval":
            seconds = args.get("seconds")
            if not isinstance(seconds, (int, float)) or not 0.01 <= seconds <= 3600:  # noqa: PLR2004
                return "failed", "seconds is not a number from 0.01 to 3600"
            self._interval_s = float(seconds)
            return "applied", f"a reading every {seconds} s"
        return "failed", f"this device does not know {name!r}"

    async def _say_how_it_is(self, broker: mqtt.Client) -> None:
        while True:
            await broker.until_up()
            with contextlib.suppress(mqtt.DisconnectedError):
                topic = topics.status(self._device.place)
                await broker.publish(topic, self._status("online"), retain=True)
            await asyncio.sleep(HEARTBEAT_S)

    def _status(self, state: Any) -> bytes:
        status = words.DeviceStatus(
            state=state,
            last_seen_at=datetime.now(UTC),
            firmware_version="simulated 1.0",
            buffer_depth=len(self._unsent),
        )
        return self._unjournaled(words.STATUS, status)

    def _unjournaled(self, kind: str, payload: msgspec.Struct) -> bytes:
        event_id = ids.new()
        self._unjournaled_ids.append(event_id)
        return farm.wrapped(self._device, kind, payload, event_id=event_id, at=datetime.now(UTC))


async def simulate(
    devices: list[Device],
    url: str,
    journal: Journal,
    *,
    interval_s: float,
    day_s: float,
    stop: Awaitable[bool],
    logins: Logins | None = None,
) -> int:
    """Run the farm until `stop`, then let it deliver; returns how many readings are unsent.

    `stop` gives True if the farm was interrupted. Each device connects with its own login; with
    none given all use the one in the address.
    """
    sensors = [Sensor(device, journal, interval_s=interval_s, day_s=day_s) for device in devices]
    async with _links(url) as (steady, unsteady):
        senders = [
            asyncio.create_task(
                sensor.send(_as_device(unsteady if device.flaky else steady, device, logins))
            )
            for sensor, device in zip(sensors, devices, strict=True)
        ]
        try:
            interrupted = await _measure(sensors, senders, stop)
            await _drain(sensors, senders, DRAIN_INTERRUPTED_S if interrupted else DRAIN_S)
        finally:
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)
    return sum(sensor.waiting for sensor in sensors)


async def _measure(
    sensors: list[Sensor], senders: "list[asyncio.Task[None]]", stop: Awaitable[bool]
) -> bool:
    measuring = [asyncio.create_task(sensor.measure()) for sensor in sensors]
    stopping = asyncio.ensure_future(stop)
    try:
        await asyncio.wait([*measuring, *senders, stopping], return_when="FIRST_COMPLETED")
    finally:
        for task in (*measuring, stopping):
            task.cancel()
        await asyncio.gather(*measuring, stopping, return_exceptions=True)
    _raise_failures(senders)
    return stopping.done() and not stopping.cancelled() and stopping.result()


async def _drain(
    sensors: list[Sensor], senders: "list[asyncio.Task[None]]", within_s: float
) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while any(sensor.waiting for sensor in sensors):
                _raise_failures(senders)
                await asyncio.sleep(0.1)


def _raise_failures(senders: "list[asyncio.Task[None]]") -> None:
    for sender in senders:
        if sender.done() and not sender.cancelled():
            sender.result()


def _as_device(url: str, device: Device, logins: Logins | None) -> str:
    """The address with the device's own login."""
    if logins is None:
        return url
    return login_url(*logins[device.place.tenant_id, device.place.device_id], url=url)


@contextlib.asynccontextmanager
async def _links(url: str) -> AsyncIterator[tuple[str, str]]:
    """(steady address, flaky address) of the same broker."""
    parts = urlsplit(url)
    async with link.flaky(*mqtt.address(url)) as unsteady:
        user = parts.netloc.rpartition("@")[0]
        yield url, urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{unsteady.port_here}"))
