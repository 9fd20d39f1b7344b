"""edge-alert-rules as a process: siren, command and mail without internet, and killed (-9)."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from farmiq.lab import stack
from farmiq.plumbing import db
from farmiq.plumbing.messaging import mqtt
from tests.conftest import Database
from tests.integration.edge.alert.test_evaluation import store_copy
from tests.integration.edge.telemetry.readings import Reading, keep, rows
from tests.support import preloaded
from tests.support.mail_server import MailServer, mail_server
from tests.support.ports import free_port
from tests.support.until import until

SIREN = "iot/command/{tenant_id}/{farm_id}/{barn_id}/siren-1/siren"
TOPIC = "iot/command/t-1/f-1/b-1/siren-1/siren"
WARM = {
    "rule_id": "warm", "signal": "telemetry.temperature", "condition": "above",
    "severity": "critical", "threshold": 30, "clear_for_s": 0,
}  # fmt: skip


@dataclass
class Barn:
    """An edge without a cloud; what its siren, its relay and its people got."""

    database: Database
    mail: MailServer
    script: Path
    devices_url: str
    environment: dict[str, str]
    started: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    heard: list[dict[str, Any]] = field(default_factory=list)

    def start(self, name: str, *, crash_at: str = "") -> "subprocess.Popen[bytes]":
        own = {"FARMIQ_CRASH_AT": crash_at, "FARMIQ_EDGE_HTTP_PORT": str(free_port())}
        process = preloaded.run(name, self.environment | own)
        self.started.append(process)
        return process

    def stop(self, process: "subprocess.Popen[bytes]") -> None:
        process.terminate()
        process.wait(timeout=20)
        self.started.remove(process)

    @property
    def switched(self) -> list[str]:
        """What the command was given, in order."""
        output = self.script.with_suffix(".out")
        return output.read_text().splitlines() if output.exists() else []

    def is_heard(self, state: str, device: str) -> bool:
        """Whether the siren was last heard in this state, for this device."""
        if not self.heard or self.heard[-1]["state"] != state:
            return False
        subjects = [alert["subject"] for alert in self.heard[-1]["alerts"]]
        return state == "off" or f"t-1/f-1/b-1/{device}" in subjects

    def mails(self, beginning: str, device: str) -> list[str]:
        """The ids of mails that begin so and are about this device."""
        return [
            message["Message-ID"]
            for message in self.mail.received
            if beginning in message["Subject"] and f"of {device} " in message["Subject"]
        ]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Stands for the program that switches a relay."""
    made = tmp_path / "relay"
    made.write_text(f'#!/bin/sh\necho "$2 $1 $FARMIQ_ALERT" >> {made.with_suffix(".out")}\n')
    made.chmod(0o755)
    return made


@pytest.fixture
async def barn(
    edge_db: Database,
    broker: stack.Stack,
    script: Path,
    tmp_path: Path,
    tasks: asyncio.TaskGroup,
) -> AsyncIterator[Barn]:
    store_copy(edge_db, [WARM], etag="1")
    url = broker.environment["FARMIQ_EDGE_MQTT_URL"]
    async with mail_server() as mail:
        environment = {
            "FARMIQ_EDGE_MQTT_URL": url,
            "FARMIQ_EDGE_DB_URL": edge_db.url,
            "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
            "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
            "ALERT_RULES_ROUND_SECONDS": "0.1",
            "ALERT_SIREN_TOPIC": SIREN,
            "ALERT_SIREN_COMMAND": f"{script} 'GPIO 17'",
            "ALERT_SIREN_REPEAT_SECONDS": "1",
            "ALERT_SMTP_URL": mail.url,
            "ALERT_MAIL_FROM": "FarmIQ <edge@example.com>",
            "ALERT_MAIL_TO": "ann@example.com, bob@example.com",
        }
        made = Barn(
            edge_db, mail, script, broker.environment["FARMIQ_DEVICES_MQTT_URL"], environment
        )
        is_up = asyncio.Event()
        tasks.create_task(_listen(url, made, is_up))
        await is_up.wait()
        try:
            yield made
        finally:
            for process in made.started:
                process.kill()
                process.wait(timeout=20)


async def _listen(url: str, barn: Barn, is_up: asyncio.Event) -> None:
    async with mqtt.connected(
        url, client_id="siren-1", topics=[TOPIC], persistent_session=False
    ) as client:
        await client.until_up()
        is_up.set()
        while True:
            messages = await client.batch(max_messages=100, linger_s=0.01)
            barn.heard += [json.loads(message.payload) for message in messages]
            client.ack(messages)


async def publish(client: mqtt.Client, value: float) -> None:
    reading = Reading(datetime.now(UTC), value)
    await client.publish(*reading.message)


@pytest.mark.timeout(180)
async def test_reading_above_the_threshold_sounds_the_siren_without_internet(barn: Barn) -> None:
    """From the broker to the siren, the relay and the mailbox, and back when it is cool."""
    barn.start("edge-ingress-gateway")
    barn.start("edge-alert-rules")
    async with mqtt.connected(
        barn.devices_url, client_id="d-1", persistent_session=False
    ) as device:
        await device.until_up()

        async def is_heard() -> bool:
            """A broker drops what is published before its first subscriber came."""
            await publish(device, 33.5)
            return barn.is_heard("on", "d-1")

        await until(is_heard)
        await until(lambda: len(barn.heard) >= 2)  # it is repeated
        await until(lambda: barn.mails("critical:", "d-1"))
        assert barn.heard[0]["alerts"][0]["message"].startswith(
            "temperature of d-1 in b-1 above 30 °C: 33.5 °C at "
        )
        await publish(device, 24.0)
        await until(lambda: barn.is_heard("off", "d-1"))
        await until(lambda: barn.mails("resolved:", "d-1"))
        await until(lambda: barn.switched[-1].split()[0] == "off")
    assert barn.switched[0].startswith("on GPIO 17 temperature of d-1 in b-1 above 30 °C")
    await until(lambda: len(barn.mail.received) == 4)
    receivers = sorted(to for _, to in barn.mail.envelopes)
    assert receivers == [["ann@example.com"]] * 2 + [["bob@example.com"]] * 2
    events = rows(barn.database, "select kind, closed_by from alerts")
    assert events == [("rule.warm", "edge")]


@pytest.mark.timeout(180)
async def test_service_killed_at_every_point_sounds_and_mails_once(barn: Barn) -> None:
    """One alert, and a death at each step of it: what was begun is finished by the next one."""
    now = datetime.now(UTC)
    async with db.pool(barn.database.url, name="test") as pool:
        await keep(pool, [Reading(now - timedelta(minutes=1), 33.5)])
        await _die(barn, "alert.before_commit")
        assert rows(barn.database, "select from alerts") == []
        await _die(barn, "alert.after_commit")
        await _die(barn, "alert.before_siren")
        assert barn.heard == []
        await _die(barn, "alert.after_siren")
        await until(lambda: barn.is_heard("on", "d-1"))
        await keep(pool, [Reading(now, 24)])
        await _die(barn, "alert.after_mail")
    barn.start("edge-alert-rules")
    await until(lambda: barn.is_heard("off", "d-1"))
    await until(lambda: barn.mails("resolved:", "d-1"))
    unsettled = (
        "select from alert_sirens where is_on union all "
        "select from alert_mails where sent_at is null"
    )
    await until(lambda: rows(barn.database, unsettled) == [])
    # It may have died each time before it came to the command.
    assert not barn.switched or barn.switched[-1].startswith("off")
    assert rows(barn.database, "select kind, closed_by from alerts") == [("rule.warm", "edge")]
    opened, resolved = barn.mails("critical:", "d-1"), barn.mails("resolved:", "d-1")
    assert (len(set(opened)), len(set(resolved))) == (2, 2)
    # What the mail server had when we died comes again under the same id: once a death at most.
    assert len(opened + resolved) <= 4 + 3


async def _die(barn: Barn, point: str) -> None:
    dying = barn.start("edge-alert-rules", crash_at=point)
    await until(lambda: dying.poll() is not None)
    assert dying.returncode == -signal.SIGKILL
    barn.started.remove(dying)


@pytest.mark.timeout(180)
async def test_mail_server_that_refuses_gets_the_mail_later(barn: Barn) -> None:
    barn.mail.answers["RCPT"] = "450 try later"
    barn.start("edge-alert-rules")
    async with db.pool(barn.database.url, name="test") as pool:
        await keep(pool, [Reading(datetime.now(UTC), 33.5)])
    error = "select error from alert_mails where attempts > 0"
    await until(lambda: rows(barn.database, error))
    assert "450 try later" in rows(barn.database, error)[0][0]
    assert barn.mail.received == []
    barn.mail.answers.clear()
    await until(lambda: barn.mails("critical:", "d-1"))
    await until(lambda: rows(barn.database, "select from alert_mails where sent_at is not null"))
