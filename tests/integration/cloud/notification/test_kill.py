"""The service is killed between any two effects: every message arrives, and none is lost."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from farmiq import crash
from tests.integration.cloud.notification.conftest import Site, started
from tests.support import preloaded
from tests.support.http_receiver import HttpReceiver
from tests.support.mail_server import MailServer
from tests.support.until import until

POINTS = [
    "notification.before_route_commit",
    "notification.after_route_commit",
    "notification.after_claim",
    "notification.after_send",
    "notification.after_sent_commit",
]
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(site: Site, free_port: Callable[[], int], tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[bytes]] = []

    def run(crash_at: str = "") -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            "FARMIQ_CLOUD_DB_URL": site.database.url,
            "FARMIQ_AMQP_URL": "amqp://unused",
            "FARMIQ_EDGE_KEYS_FILE": "unused",
            "FARMIQ_SECRETS_KEY_FILE": str(site.settings.secrets_key_file),
            "FARMIQ_PUBLIC_URL": "http://cloud.test",
            "FARMIQ_ALERT_PRIVATE_HOSTS": "127.0.0.1",
            "FARMIQ_CLOUD_HTTP_PORT": str(free_port()),
            "FARMIQ_CRASH_AT": crash_at,
        }
        log = tmp_path / f"{len(running)}.log"
        running.append(preloaded.run("cloud-notification-service", environment, log=log))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.wait()


def ended(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is not None


async def test_killed_at_every_point_each_message_arrives(
    site: Site, start: Start, mailbox: MailServer, receiver: HttpReceiver
) -> None:
    """One after the other dies over work of its own; the last one finishes it all."""
    assert [point for point in crash.POINTS if point.startswith("notification.")] == POINTS
    async with started(site) as running:
        await running.mail(mailbox)
        await running.hook(receiver)
    for point in POINTS:
        site.open()
        dying = start(point)
        await until(partial(ended, dying), within_s=60)
        assert dying.returncode == -signal.SIGKILL, point
        # Claims of the dead end.
        site.ahead(f"{2 * (POINTS.index(point) + 1)} minutes")
    start()
    rows = await site.until_ended(2 * len(POINTS))
    assert [row[3] for row in rows] == ["sent"] * 2 * len(POINTS)
    mails = [message["Message-ID"] for message in mailbox.received]
    hooks = [posted.headers["webhook-id"] for posted in receiver.posted]
    assert (len(set(mails)), len(set(hooks))) == (5, 5)
    # Only what was sent and not noted goes twice, with the same id: at most what was in flight.
    assert 1 <= len(mails) + len(hooks) - 10 <= 8
