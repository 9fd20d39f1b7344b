"""Alerts, the whole way: from a device to a mailbox and a webhook, and back by the link."""

import asyncio
import base64
import hashlib
import hmac
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import psycopg
import pytest

from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.lab.simulate import farm as simulated
from farmiq.plumbing import ids, sealing
from farmiq.plumbing.messaging import mqtt
from farmiq.services import SITES
from tests.support.farm import PASSWORD, TENANT, Farm
from tests.support.http_receiver import HttpReceiver, Posted, http_receiver
from tests.support.mail_server import MailServer, mail_server
from tests.support.until import until

ADMIN = "admin@hillside.farm"
RULE = {
    "signal": "telemetry.temperature",
    "condition": "above",
    "threshold": 30.0,
    "clear": 29.0,
    "for_s": 60,
    "clear_for_s": 0,
    "severity": "critical",
}
REPEATS = 1_000
MESSAGES = """
    select m.contact_id, m.step, m.state from alert_messages m join alert_episodes e
      using (tenant_id, episode_id)
    where e.rule_id = 'too-hot' order by 1, 2
    """
SIGNING_KEY = b"a key of thirty-two random bytes"
(SENSOR, *_) = simulated.farm(TENANT, barns=1)


def signed(posted: Posted) -> bool:
    """As the receiver of a webhook checks it."""
    name, at = posted.headers["webhook-id"], posted.headers["webhook-timestamp"]
    text = b".".join((name.encode(), at.encode(), posted.body))
    made = base64.b64encode(hmac.digest(SIGNING_KEY, text, hashlib.sha256)).decode()
    return posted.headers["webhook-signature"] == f"v1,{made}"


@dataclass
class Alarm:
    """A farm whose alerts go to a mail server and to a webhook."""

    farm: Farm
    mails: MailServer
    hook: HttpReceiver
    seq: int = 0

    async def publish(self, *readings: tuple[datetime, float]) -> None:
        """As the sensor: every message confirmed by the broker."""
        sendings = []
        for at, value in readings:
            self.seq += 1
            metric = simulated.Metric("temperature", "°C", value, 0.0, 0.0, 0.0)
            sendings.append(
                simulated.message(
                    SENSOR, metric, at=at, event_id=ids.new(), seq=self.seq, chance=0.5
                )
            )
        await self.send(*sendings)

    async def send(self, *sendings: simulated.Sending) -> None:
        url = self.farm.environment["FARMIQ_DEVICES_MQTT_URL"]
        client_id = f"d-{ids.new().hex}"
        async with mqtt.connected(url, client_id=client_id, persistent_session=False) as link:
            await link.until_up()
            await asyncio.gather(*(link.publish(each.topic, each.raw) for each in sendings))

    def configure(self) -> None:
        """What a person sets: a channel of each kind, two contacts, a rule."""
        with psycopg.connect(self.farm.cloud_db.admin_url) as connection:
            company = add_company(connection, TENANT, name="Hillside Farm")
            add_user(connection, ADMIN, company_id=company, password=PASSWORD, role="admin")
            token = open_sign_in(connection, ADMIN, lasts=timedelta(hours=1))
        signing_key = "whsec_" + base64.b64encode(SIGNING_KEY).decode()
        with httpx2.Client(
            base_url=f"{self.farm.url('cloud')}/api/v1",
            headers={"authorization": f"Bearer {token}"},
            timeout=60,
        ) as person:
            for path, body in (
                (
                    "alert-channels/mail",
                    {
                        "kind": "email",
                        "settings": {"sender": "FarmIQ <alerts@hillside.farm>"},
                        "secrets": {"smtp_url": self.mails.url},
                    },
                ),
                (
                    "alert-channels/hook",
                    {
                        "kind": "webhook",
                        "secrets": {"url": self.hook.url, "signing_key": signing_key},
                    },
                ),
                ("alert-contacts/ann", {"name": "Ann", "addresses": {"mail": "ann@example.com"}}),
                ("alert-contacts/control", {"name": "Control room", "addresses": {"hook": ""}}),
                ("alert-rules/too-hot", RULE),
            ):
                answer = person.put(f"/{path}", json=body)
                assert answer.status_code in {200, 201}, f"{path}: {answer.text}"

    def episodes(self) -> list[tuple[Any, ...]]:
        """(id, state, acknowledged by) of the rule's episodes."""
        return self.farm.cloud(
            "select episode_id::text, state, acknowledged_by from alert_episodes "
            "where rule_id = 'too-hot' order by opened_at"
        )

    def mailed(self) -> list[Any]:
        """Mails about the rule's episodes: the edge may have something else to say."""
        ours = {
            row[0]
            for row in self.farm.cloud(
                "select m.message_id::text from alert_messages m join alert_episodes e "
                "using (tenant_id, episode_id) where e.rule_id = 'too-hot'"
            )
        }
        return [
            mail for mail in self.mails.received if any(one in mail["Message-ID"] for one in ours)
        ]

    def hooked(self) -> list[str]:
        """The steps that the webhook heard of the rule's episodes."""
        ours = {row[0] for row in self.episodes()}
        bodies = [posted.json() for posted in self.hook.posted if signed(posted)]
        return [body["step"] for body in bodies if body["episode_id"] in ours]


@pytest.fixture
async def alarm(two_sites: Farm) -> AsyncIterator[Alarm]:
    farm = two_sites
    key_file = farm.folder / "secrets.key"
    sealing.write_new_key(key_file)
    farm.environment |= {
        "FARMIQ_SECRETS_KEY_FILE": str(key_file),
        "FARMIQ_PUBLIC_URL": farm.url("cloud"),
        "FARMIQ_ALERT_PRIVATE_HOSTS": "127.0.0.1",
    }
    for site in SITES:
        farm.start(site)
    await farm.until_ready()
    async with mail_server() as mails, http_receiver() as hook:
        made = Alarm(farm, mails, hook)
        await asyncio.to_thread(made.configure)
        yield made


@pytest.mark.timeout(300)
@pytest.mark.req("BY-06")
async def test_reading_above_the_limit_is_one_message_until_it_is_acknowledged_and_resolved(
    alarm: Alarm, record_property: Callable[[str, object], None]
) -> None:
    farm, now = alarm.farm, datetime.now(UTC)
    began = time.monotonic()
    await alarm.publish((now - timedelta(seconds=90), 33.0), (now, 34.0))
    await until(alarm.mailed, within_s=90)
    record_property("seconds from the device to the mailbox", round(time.monotonic() - began, 2))
    await until(lambda: alarm.hooked() == ["opened"])
    ((episode_id, state, _),) = alarm.episodes()
    assert state == "active"

    # A thousand readings that say the same, each of them twice, are nothing new.
    sendings = [
        simulated.message(
            SENSOR,
            simulated.Metric("temperature", "°C", 34.0 + number % 10 / 10, 0.0, 0.0, 0.0),
            at=now + timedelta(milliseconds=number + 1),
            event_id=ids.new(),
            seq=number + 10,
            chance=0.5,
        )
        for number in range(REPEATS)
    ]
    await alarm.send(*sendings, *sendings)
    alarm.seq = REPEATS + 10
    await until(
        lambda: farm.cloud("select count(*) from telemetry_readings") == [(REPEATS + 2,)],
        within_s=90,
    )
    last_at = now + timedelta(milliseconds=REPEATS)
    state_of_it = "select last_at from alert_states where signal = 'telemetry.temperature'"
    await until(lambda: farm.cloud(state_of_it) == [(last_at,)], within_s=90)

    (opened,) = alarm.mailed()
    (link,) = re.findall(r"http://\S+/alerts/ack/\S+", opened.get_content())
    # A mail scanner that follows the link acknowledges nothing.
    assert "I look after it" in httpx2.get(link, timeout=60).text
    assert alarm.episodes() == [(episode_id, "active", None)]
    assert "Acknowledged by Ann" in httpx2.post(link, timeout=60).text
    ((_, state, by),) = alarm.episodes()
    assert (state, by.startswith("Ann")) == ("acknowledged", True)
    await until(lambda: alarm.hooked() == ["opened", "acknowledged"])

    await alarm.publish((now + timedelta(seconds=2), 21.0))
    await until(lambda: len(alarm.mailed()) == 2, within_s=90)
    await until(lambda: alarm.hooked() == ["opened", "acknowledged", "resolved"])
    assert "Resolved" in alarm.mailed()[1]["Subject"]
    assert [row[1] for row in alarm.episodes()] == ["resolved"]
    assert all(map(signed, alarm.hook.posted))
    expected = [
        ("ann", "opened", "sent"),
        ("ann", "resolved", "sent"),
        ("control", "acknowledged", "sent"),
        ("control", "opened", "sent"),
        ("control", "resolved", "sent"),
    ]
    # A message is noted as sent a moment after it was accepted.
    await until(lambda: farm.cloud(MESSAGES) == expected)
