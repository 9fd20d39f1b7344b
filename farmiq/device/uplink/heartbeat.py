"""The heartbeat: the station's status and last will on its topic, and its alarms in the log."""

import asyncio
import contextlib
from typing import Any, Literal

import msgspec

from farmiq import __version__
from farmiq.config.device import DeviceSettings
from farmiq.device import status
from farmiq.device.buffer import salvage, store
from farmiq.device.buffer.database import Buffer, DiskFullError
from farmiq.device.buffer.recorder import Recorder
from farmiq.device.buffer.store import Tx
from farmiq.device.uplink.drain import SendGate
from farmiq.messages import device, envelope, topics
from farmiq.messages.instants import rfc3339
from farmiq.plumbing import ids, log
from farmiq.plumbing.messaging import mqtt

NAME = "iot-weighvision-agent"
TICK_S = 1.0
GOODBYE_S = 2.0
# The client's text begins so when the broker answered, and refused.
_REJECTED = ("broker: refused:", "broker: subscription refused:")


class Heartbeat:
    """Publishes the status now and then, and at once when something changed."""

    def __init__(
        self, settings: DeviceSettings, buffer: Buffer, recorder: Recorder, gate: SendGate
    ) -> None:
        self._settings, self._buffer = settings, buffer
        self._recorder, self._gate = recorder, gate
        self._alarms: dict[str, status.Alarm] = {}
        self._started_at = buffer.clock.mono()
        self._depth = self._failed = 0
        self._broker: mqtt.Client | None = None
        if (salvaged := buffer.salvaged) is not None:
            self.alarm(
                status.BUFFER_SALVAGED,
                f"the buffer was damaged ({salvaged.reason}); {salvaged.rows} rows were salvaged, "
                f"{salvaged.broken} were not; the old file is {salvaged.damaged_file.name}"
                f"{_seq_text(salvaged)}",
            )

    @property
    def connected(self) -> bool:
        return self._broker is not None and self._broker.problem() is None

    def alarm(self, name: str, text: str | None) -> None:
        """Raise an alarm with a text, or clear it with None; logged when that changes anything."""
        known = self._alarms.get(name)
        if text is not None:
            self._alarms[name] = status.Alarm(known.since if known else self._buffer.now(), text)
            if known is None:
                log.get(NAME).error("alarm.raised", name=name, reason=text)
        elif self._alarms.pop(name, None) is not None:
            log.get(NAME).info("alarm.cleared", name=name)

    async def run(self, broker: mqtt.Client) -> None:
        """Until cancelled: publish when we are connected, when the status changed, and at times."""
        self._broker = broker
        published: object = None
        published_at = float("-inf")
        try:
            while True:
                await self._check_buffer()
                self._check_login(broker)
                now = self._buffer.clock.mono()
                facts = (broker.connection, self._state(), self._failed, *self._alarms)
                due = now - published_at >= self._settings.heartbeat_s
                if self.connected and (facts != published or due):
                    with contextlib.suppress(mqtt.DisconnectedError):
                        # The limit counts whatever the station sends.
                        await self._gate.wait()
                        await self._publish(broker, self._encode(self._state()))
                        published, published_at = facts, now
                await asyncio.sleep(TICK_S)
        finally:
            self._broker = None

    async def say_goodbye(self, broker: mqtt.Client) -> None:
        """We stop in good order: the broker sends no last will, so we publish it ourselves."""
        with contextlib.suppress(mqtt.DisconnectedError, TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self._publish(broker, self.will())

    async def _publish(self, broker: mqtt.Client, body: bytes) -> None:
        await broker.publish(topics.status(self._settings.place), body, retain=True)

    async def _check_buffer(self) -> None:
        def work(tx: Tx) -> tuple[dict[str, int], int]:
            return store.tally(tx), store.count_sessions_with_problem(tx)

        with contextlib.suppress(DiskFullError):
            counts, self._failed = await self._buffer.do(work)
            self._depth = store.backlog(counts)
            advice = "`farmiq agent status` shows them, `farmiq agent buffer redrive` tries again"
            for name, count, text in (
                (status.UPLOADS_FAILED, counts["pictures_failed"], "pictures failed"),
                (status.EVENTS_REJECTED, counts["refused"], "events were refused"),
            ):
                self.alarm(name, f"{count} {text}; {advice}" if count else None)
        await self._recorder.check_room()
        self.alarm(status.BUFFER_FULL, self._recorder.full)

    def _check_login(self, broker: mqtt.Client) -> None:
        """A refused login is for a person to fix; the alarm stays between two attempts."""
        problem = broker.problem()
        if problem is None:
            self.alarm(status.LOGIN_REJECTED, None)
        elif problem.startswith(_REJECTED):
            self.alarm(
                status.LOGIN_REJECTED,
                f"{problem}; user and password of AGENT_MQTT_URL, or tenant, farm, barn and device "
                "are not those the device was added with (with --receipts): `farmiq device`",
            )

    def describe(self) -> dict[str, Any]:
        """The status for the page and the command."""
        health, state = self._recorder.health, self._state()
        return {
            "tenant_id": self._settings.tenant_id,
            "device_id": self._settings.device_id,
            "station_id": self._settings.station_id,
            # To the edge we say "online" when it hears us; here it is shown when it does not.
            "state": "offline" if state == "online" and not self.connected else state,
            "version": __version__,
            "uptime_s": self._uptime_s(),
            "scale_ok": health.scale_ok,
            "camera_ok": health.camera_ok,
            "alarms": {
                name: {"since": rfc3339(alarm.since), "text": alarm.text}
                for name, alarm in self._alarms.items()
            },
        }

    def will(self) -> bytes:
        return self._encode("offline")

    def _uptime_s(self) -> float:
        return round(self._buffer.clock.mono() - self._started_at, 1)

    def _state(self) -> Literal["online", "error"]:
        health = self._recorder.health
        broken = health.scale_ok is False or health.camera_ok is False
        return "error" if broken or status.GRAVE & self._alarms.keys() else "online"

    def _encode(self, state: Literal["online", "offline", "error"]) -> bytes:
        raised, health = self._alarms, self._recorder.health
        payload = device.DeviceStatus(
            state=state,
            last_seen_at=self._buffer.now(),
            firmware_version=__version__,
            health=device.DeviceHealth(
                camera_ok=health.camera_ok,
                scale_ok=health.scale_ok,
                disk_ok=not {status.DISK_FULL, status.BUFFER_FULL} & raised.keys(),
            ),
            uptime_s=self._uptime_s(),
            buffer_depth=self._depth,
            failed_sessions=self._failed,
            alarms=tuple(raised),
        )
        return envelope.write(
            self._settings.place,
            msgspec.json.encode(payload),
            event_type=device.STATUS,
            event_id=ids.new(),
            at=self._buffer.now(),
        )


def _seq_text(salvaged: salvage.Salvaged) -> str:
    if salvaged.last_seq is not None:
        return f"; seq goes on behind {salvaged.last_seq}"
    return (
        "; how far seq had come is lost: it begins anew at 1, the edge may flag it. Files in "
        "pictures/ that no row names are kept"
    )
