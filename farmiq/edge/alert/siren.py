"""The siren: a topic of the broker and a command, on until alerts resolve or are silenced.

A siren is noted as on before it is switched on, and as off after it was switched off. So whatever a
crash interrupts, the next round drives it again, on or off; both may be repeated.
"""

import asyncio
import contextlib
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from prometheus_client import Counter, Gauge

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge.alert import store
from farmiq.edge.alert.mails import at_least
from farmiq.plumbing import db, log
from farmiq.plumbing.messaging import mqtt

COMMAND = "command"
COMMAND_TIMEOUT_S = 10.0
MAX_ALERTS = 20
ROUND_S = 1.0

DRIVEN = Counter("farmiq_siren_driven_total", "Attempts to switch a siren", ["output", "outcome"])
SOUNDING = Gauge("farmiq_siren_alerts", "Local alerts that sound the siren now")

Alerts = Sequence[Mapping[str, Any]]
Drive = Callable[[str, Alerts], Awaitable[None]]


class SirenError(Exception):
    """A siren could not be switched; it is tried again."""


class Siren:
    """Drives what the settings name, for alerts of ALERT_SIREN_SEVERITY and above."""

    def __init__(self, pool: db.Pool, settings: EdgeSettings, broker: mqtt.Client | None) -> None:
        self._pool, self._settings, self._broker = pool, settings, broker
        self._command = shlex.split(settings.siren_command or "")

    async def look(self) -> dict[str, object]:
        """Switch on what has to sound, repeat it when it is due, switch off the rest."""
        async with db.transaction(self._pool) as tx:
            sounding = await store.sounding(tx, at_least(self._settings.siren_severity))
            on = await store.sirens(tx, repeat_s=self._settings.siren_repeat_s)
        SOUNDING.set(len(sounding))
        wanted = self._outputs(sounding)
        failed = 0
        for output, alerts in wanted.items():
            if on.get(output, True):
                failed += not await self._switch_on(output, alerts, is_new=output not in on)
        for output in on.keys() - wanted.keys():
            failed += not await self._switch_off(output)
        return {"failed": failed} if failed else {}

    def _outputs(self, sounding: Alerts) -> dict[str, Alerts]:
        """The sirens that have to be on, each with the alerts it is on for."""
        outputs: dict[str, list[Mapping[str, Any]]] = {}
        for alert in sounding:
            if self._settings.siren_topic:
                outputs.setdefault(_topic(self._settings.siren_topic, alert), []).append(alert)
            if self._command:
                outputs.setdefault(COMMAND, []).append(alert)
        return dict(outputs)

    async def _switch_on(self, output: str, alerts: Alerts, *, is_new: bool) -> bool:
        if is_new:
            async with db.transaction(self._pool) as tx:
                await store.note_siren_on(tx, output)
            crash.here("alert.before_siren")
        return await self._drive(output, alerts)

    async def _switch_off(self, output: str) -> bool:
        return await self._drive(output, ())

    async def _drive(self, output: str, alerts: Alerts) -> bool:
        """Whether the siren was switched; if not, the next round tries again."""
        label = COMMAND if output == COMMAND else "mqtt"
        try:
            if output == COMMAND:
                await self.run_command(alerts)
            else:
                await self._publish(output, alerts)
        except SirenError as error:
            DRIVEN.labels(output=label, outcome="failed").inc()
            log.get("alert").error("alert.siren_failed", name=label, error=str(error))
            return False
        DRIVEN.labels(output=label, outcome="done").inc()
        crash.here("alert.after_siren")
        async with db.transaction(self._pool) as tx:
            await store.note_siren_driven(tx, output, is_on=bool(alerts))
        return True

    async def _publish(self, topic: str, alerts: Alerts) -> None:
        if self._broker is None:
            # The setting was taken away while it was on: nothing can be published any more.
            return
        try:
            await self._broker.publish(topic, self._payload(alerts))
        except mqtt.DisconnectedError as error:
            raise SirenError(str(error)) from None

    def _payload(self, alerts: Alerts) -> bytes:
        state = "ON" if alerts else "OFF"
        if self._settings.siren_payload == "plain":
            return state.encode()
        return msgspec.json.encode(
            {
                "state": state.lower(),
                "sent_at": datetime.now(UTC),
                "alerts": [
                    {
                        name: alert[name]
                        for name in ("kind", "subject", "severity", "message", "opened_at")
                    }
                    for alert in alerts[:MAX_ALERTS]
                ],
                "alert_count": len(alerts),
            }
        )

    async def run_command(self, alerts: Alerts) -> None:
        """Run the command with `on` or `off` after its arguments, and the first alert's message."""
        if not self._command:
            return
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "on" if alerts else "off",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                # None of our secrets.
                env={
                    "PATH": os.defpath,
                    "FARMIQ_ALERT": alerts[0]["message"] if alerts else "",
                },
                start_new_session=True,
            )
        except OSError as error:
            raise SirenError(f"the siren's command cannot be run: {error.strerror}") from None
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                code = await process.wait()
        except TimeoutError:
            raise SirenError(f"the siren's command ran over {COMMAND_TIMEOUT_S:g} s") from None
        finally:
            if process.returncode is None:
                await _kill(process)
        if code != 0:
            raise SirenError(f"the siren's command ended with {code}")


async def _kill(process: asyncio.subprocess.Process) -> None:
    """End the command and what it started: it has a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    await process.wait()


def _topic(template: str, alert: Mapping[str, Any]) -> str:
    for name in ("tenant_id", "farm_id", "barn_id"):
        template = template.replace(f"{{{name}}}", alert[name])
    return template
