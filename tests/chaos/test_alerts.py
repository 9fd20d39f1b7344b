"""SIGKILL of the alert services, their database and the mail server: each message arrives."""

import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from farmiq.cloud import bus
from farmiq.cloud.identity.accounts import add_company
from farmiq.lab import stack
from farmiq.plumbing import migrations
from farmiq.plumbing.bus import amqp
from farmiq.services import SQL
from tests.integration.cloud.conftest import event
from tests.integration.cloud.test_sinks import outgoing, written
from tests.support import preloaded
from tests.support.engines import state_dir
from tests.support.mail_server import MailServer, mail_server
from tests.support.ports import free_port
from tests.support.until import until

pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(300)]

ALERTS, NOTIFICATION = "cloud-alerts-service", "cloud-notification-service"
TELEMETRY = "cloud-telemetry-service"
DATABASE, MAIL = "postgres-cloud", "the mail server"
VICTIMS = (ALERTS, NOTIFICATION, DATABASE, MAIL, TELEMETRY, NOTIFICATION, ALERTS)
BARNS_A_ROUND = 8
# Messages of one channel that are on their way at once; what kills the sender may double those.
IN_FLIGHT = 4
DOUBLING = (NOTIFICATION, DATABASE, MAIL)
CONTACT = """
    insert into alert_channels (tenant_id, channel_id, kind, settings, secret_names, changed_at,
      changed_by)
    values ('t-001', 'mail', 'email', '{}', '{}', now(), 'test');
    insert into alert_contacts (tenant_id, contact_id, name, level, severities, addresses,
      quiet_passed_by, changed_at, changed_by)
    values ('t-001', 'ann', 'Ann', 1, '{critical}', '{"mail": "ann@example.com"}', '{}', now(),
      'test');
    """


@dataclass
class Site:
    """The services of alerts on a database of their own, and a mail server."""

    engines: stack.Stack
    amqp_url: str
    folder: Path
    mail_port: int
    # The server that runs now, and what each of them has accepted.
    serving: AsyncExitStack = field(default_factory=AsyncExitStack)
    servers: list[MailServer] = field(default_factory=list)
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def start(self, name: str) -> None:
        environment = {
            "FARMIQ_CLOUD_DB_URL": self.engines.environment["FARMIQ_CLOUD_DB_URL"],
            "FARMIQ_AMQP_URL": self.amqp_url,
            "FARMIQ_CLOUD_HTTP_PORT": str(self.ports.setdefault(name, free_port())),
            "FARMIQ_ALERT_SMTP_URL": f"smtp://127.0.0.1:{self.mail_port}",
            "FARMIQ_ALERT_MAIL_FROM": "alerts@example.com",
        }
        self.running[name] = preloaded.run(name, environment, log=self.folder / f"{name}.log")

    async def kill(self, victim: str) -> None:
        """SIGKILL, and start again. A mail server's connections end with it."""
        if victim == DATABASE:
            self.engines.kill(victim)
            self.engines.restart(victim)
        elif victim == MAIL:
            await self.serving.aclose()
            await self.serve_mail()
        else:
            self.stop(victim)
            self.start(victim)

    def stop(self, name: str) -> None:
        self.running[name].kill()
        self.running[name].wait()

    async def serve_mail(self) -> None:
        opened = mail_server(port=self.mail_port)
        self.servers.append(await self.serving.enter_async_context(opened))

    def restart_without_waiting(self) -> None:
        """As if the time had passed for which a message waits after a failure or a death."""
        for name in (ALERTS, NOTIFICATION):
            self.stop(name)
        self.rows(
            "update alert_messages set claimed_until = null, next_attempt_at = now() "
            "where state = 'pending' returning 1"
        )
        for name in (ALERTS, NOTIFICATION):
            self.start(name)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        url = self.engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
        with psycopg.connect(url, connect_timeout=30) as connection:
            return connection.execute(query.encode()).fetchall()

    def mails(self) -> Counter[str]:
        """How often each message was accepted, by its id."""
        return Counter(
            str(mail["Message-ID"]) for server in self.servers for mail in server.received
        )

    def sent(self, step: str) -> int:
        ((count,),) = self.rows(
            "select count(*) from alert_messages where state = 'sent' and step = "  # noqa: S608
            f"'{step}'"
        )
        return int(count)


@pytest.fixture
def site(tmp_path: Path, vhost: str) -> Iterator[Site]:
    root = tmp_path / "stack"
    with stack.start(
        root, engines=(DATABASE,), downloads=state_dir() / "engines", say=lambda _: None
    ) as engines:
        admin_url = engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
        migrations.apply(admin_url, SQL["cloud"])
        with psycopg.connect(admin_url) as connection:
            add_company(connection, "t-001", name="One")
            connection.execute(CONTACT.encode())
        made = Site(engines, vhost, tmp_path, free_port())
        yield made
        for name in made.running:
            made.stop(name)
    stack.remove(root)


async def publish(publisher: amqp.Publisher, began: datetime, barns: range, *values: float) -> None:
    """A reading every five minutes of each barn, the last one a minute ago."""
    messages = [
        outgoing(
            "telemetry.ingested",
            written(
                event(
                    barn_id=f"b-{barn}",
                    device_id=f"d-{barn}",
                    occurred_at=(began + timedelta(seconds=at_s)).isoformat(),
                    payload={"metric_type": "temperature", "metric_value": value, "unit": "C"},
                )
            ),
        )
        for at_s, value in ((302 * (value < 30) + 301 * n, value) for n, value in enumerate(values))
        for barn in barns
    ]
    await publisher.publish(messages, timeout_s=60)


async def test_kill_of_any_part_loses_no_message_and_doubles_none_but_those_on_their_way(
    site: Site, record_property: Callable[[str, object], None]
) -> None:
    for name in (TELEMETRY, ALERTS, NOTIFICATION):
        site.start(name)
    await site.serve_mail()
    began = datetime.now(UTC) - timedelta(seconds=660)
    barns = range(BARNS_A_ROUND * len(VICTIMS))
    async with amqp.publisher(site.amqp_url, name="test", topology=bus.TOPOLOGY) as publisher:
        for number, victim in enumerate(VICTIMS):
            first = number * BARNS_A_ROUND
            # 40 °C for five minutes: the rule that ships needs no configuration.
            hot = range(first, first + BARNS_A_ROUND)
            await publish(publisher, began, hot, 40.0, 40.0)
            # Sooner or later: while readings are evaluated, or while messages are made and sent.
            await until(partial(_reached, site, first + random.randint(0, 4)), within_s=90)
            await site.kill(victim)
        await _all_told(site, "opened", len(barns))
        await publish(publisher, began, barns, 20.0, 20.0)
        await until(partial(_reached, site, len(barns)))
        await site.kill(NOTIFICATION)
        await _all_told(site, "resolved", len(barns))

    assert site.rows("select count(*), count(distinct cause) from alert_episodes") == [
        (len(barns), len(barns))
    ]
    accepted, noted = site.mails(), site.rows("select message_id::text, state from alert_messages")
    # One message for each episode and step, each of them in the mailbox.
    assert len(noted) == len(accepted) == 2 * len(barns)
    assert {state for _, state in noted} == {"sent"}
    assert all(any(message_id in mail for mail in accepted) for message_id, _ in noted)
    doubled = accepted.total() - len(accepted)
    record_property("messages that were accepted twice", doubled)
    kills = sum(victim in DOUBLING for victim in VICTIMS) + 3
    assert doubled <= IN_FLIGHT * kills
    await site.serving.aclose()


def _reached(site: Site, least: int) -> bool:
    """So many barns have an episode, or people were told of so many."""
    ((opened, told),) = site.rows(
        "select (select count(*) from alert_episodes), "
        "(select count(*) from alert_messages where state = 'sent')"
    )
    return bool(random.choice((opened, told)) >= least)


async def _all_told(site: Site, step: str, count: int) -> None:
    made = f"select count(*) from alert_messages where step = '{step}'"  # noqa: S608
    await until(lambda: site.rows(made) == [(count,)], within_s=120)
    site.restart_without_waiting()
    await until(lambda: site.sent(step) == count, within_s=120)
