"""What the station says of itself: status and last will on its topic, alarms on page and in log."""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from farmiq import __version__
from farmiq.config.device import DeviceSettings
from farmiq.device import alarms, salvage, store
from farmiq.device.alarms import Alarms
from farmiq.device.buffer import Buffer, DiskFullError
from farmiq.device.gate import Gate
from farmiq.device.notebook import Notebook
from farmiq.device.store import Tx
from farmiq.messages import device, topics
from farmiq.messages.envelope import SCHEMA_VERSION, Envelope
from farmiq.plumbing import ids, log, mqtt

NAME = "iot-weighvision-agent"
TICK_S = 1.0
GOODBYE_S = 2.0
# As the client begins its sentence when the broker answered, and said no.
_REFUSED = ("broker: refused:", "broker: subscription refused:")


class Teller:
    """Says a heartbeat now and then, and at once when something changed."""

    def __init__(
        self, settings: DeviceSettings, buffer: Buffer, notebook: Notebook, gate: Gate
    ) -> None:
        self._settings, self._buffer = settings, buffer
        self._notebook, self._gate = notebook, gate
        self._alarms = Alarms()
        self._began = buffer.clock.mono()
        self._depth = self._failed = 0
        self._broker: mqtt.Client | None = None
        if (found := buffer.salvaged) is not None:
            self.alarm(
                alarms.BUFFER_SALVAGED,
                f"the buffer was damaged ({found.reason}); {found.rows} rows were salvaged, "
                f"{found.broken} were not; the old file is {found.aside.name}{_numbers(found)}",
            )

    @property
    def connected(self) -> bool:
        return self._broker is not None and self._broker.problem() is None

    def alarm(self, name: str, text: str | None) -> None:
        if not self._alarms.say(name, text, now=self._buffer.now()):
            return
        if text is None:
            log.get(NAME).info("alarm.cleared", name=name)
        else:
            log.get(NAME).error("alarm.raised", name=name, reason=text)

    async def run(self, broker: mqtt.Client) -> None:
        """Until cancelled: a status when we are connected, when it changed, and as a heartbeat."""
        self._broker = broker
        told: object = None
        told_at = float("-inf")
        try:
            while True:
                await self._look()
                self._look_at_login(broker)
                now = self._buffer.clock.mono()
                facts = (broker.connection, self._state(), self._failed, *self._alarms.raised)
                due = now - told_at >= self._settings.heartbeat_s
                if self.connected and (facts != told or due):
                    with contextlib.suppress(mqtt.Disconnected):
                        await self._say(broker)
                        told, told_at = facts, now
                await asyncio.sleep(TICK_S)
        finally:
            self._broker = None

    async def take_leave(self, broker: mqtt.Client) -> None:
        """We stop in good order: the broker sends no last will, so we say it ourselves."""
        with contextlib.suppress(mqtt.Disconnected, TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await broker.publish(topics.status(self._settings.place), self.will(), retain=True)

    async def _say(self, broker: mqtt.Client) -> None:
        # The limit is the station's, whatever it says.
        await self._gate.wait()
        topic = topics.status(self._settings.place)
        await broker.publish(topic, self._status(self._state()), retain=True)

    async def _look(self) -> None:
        def work(tx: Tx) -> tuple[dict[str, int], int]:
            return store.tally(tx), store.count_sessions_with_problem(tx)

        with contextlib.suppress(DiskFullError):
            counts, self._failed = await self._buffer.do(work)
            self._depth = counts["waiting"] + counts["sending"] + counts["published"]
            self._alarm_of(alarms.UPLOADS_FAILED, counts["pictures_failed"], "pictures failed")
            self._alarm_of(alarms.EVENTS_REFUSED, counts["refused"], "events were refused")
        await self._notebook.look_for_room()
        self.alarm(alarms.BUFFER_FULL, self._notebook.full)

    def _look_at_login(self, broker: mqtt.Client) -> None:
        """A login that is refused is for a person to mend; the alarm stays between two tries."""
        problem = broker.problem()
        if problem is None:
            self.alarm(alarms.LOGIN_REFUSED, None)
        elif problem.startswith(_REFUSED):
            self.alarm(
                alarms.LOGIN_REFUSED,
                f"{problem}; user and password of AGENT_MQTT_URL, or tenant, farm, barn and device "
                "are not those the device was added with (with --receipts): `farmiq device`",
            )

    def _alarm_of(self, name: str, count: int, what: str) -> None:
        advice = "`farmiq agent status` shows them, `farmiq agent buffer redrive` tries again"
        self.alarm(name, f"{count} {what}; {advice}" if count else None)

    # --- words

    def said(self) -> dict[str, Any]:
        health = self._notebook.health
        return {
            "tenant_id": self._settings.tenant_id,
            "device_id": self._settings.device_id,
            "station_id": self._settings.station_id,
            # To the edge we say "online" when it hears us; here it is said when it does not.
            "state": "offline"
            if self._state() == "online" and not self.connected
            else self._state(),
            "version": __version__,
            "uptime_s": round(self._buffer.clock.mono() - self._began, 1),
            "scale_ok": health.scale_ok,
            "camera_ok": health.camera_ok,
            "alarms": {
                name: {"since": zulu(alarm.since), "text": alarm.text}
                for name, alarm in self._alarms.raised.items()
            },
        }

    def will(self) -> bytes:
        return self._status("offline")

    def _state(self) -> Literal["online", "error"]:
        health = self._notebook.health
        broken = health.scale_ok is False or health.camera_ok is False
        return "error" if broken or self._alarms.grave else "online"

    def _status(self, state: Literal["online", "offline", "error"]) -> bytes:
        raised = self._alarms.raised
        health = self._notebook.health
        status = device.DeviceStatus(
            state=state,
            last_seen_at=self._buffer.now(),
            firmware_version=__version__,
            health=device.DeviceHealth(
                camera_ok=health.camera_ok,
                scale_ok=health.scale_ok,
                disk_ok=not {alarms.DISK_FULL, alarms.BUFFER_FULL} & raised.keys(),
            ),
            uptime_s=round(self._buffer.clock.mono() - self._began, 1),
            buffer_depth=self._depth,
            failed_sessions=self._failed,
            alarms=tuple(raised),
        )
        event_id = ids.new()
        return msgspec.json.encode(
            Envelope(
                schema_version=SCHEMA_VERSION,
                event_id=event_id,
                trace_id=str(event_id),
                tenant_id=self._settings.tenant_id,
                device_id=self._settings.device_id,
                event_type=device.STATUS,
                ts=self._buffer.now().astimezone(UTC),
                payload=msgspec.Raw(msgspec.json.encode(status)),
            )
        )


def _numbers(found: salvage.Salvaged) -> str:
    if found.last_seq is not None:
        return f"; seq goes on behind {found.last_seq}"
    return (
        "; how far seq had come is lost: it begins anew at 1, the edge may flag it. Files in "
        "pictures/ that no row names are kept"
    )


def zulu(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
