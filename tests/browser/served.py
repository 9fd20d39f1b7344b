"""A console in a thread of its own, so that a test can stop and start it under a browser."""

import asyncio
import contextlib
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus, client

from fastapi import FastAPI

from farmiq.cloud.camera.gateway import service as gateway
from farmiq.cloud.console import service
from farmiq.cloud.deadletter import service as deadletter
from farmiq.cloud.feed import service as feed
from farmiq.cloud.media import service as media
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http
from tests.browser import patience
from tests.support.ports import free_port

# Of the ports that tests get, those that a browser never opens.
UNSAFE = {6000, 6566, *range(6665, 6670), 6679, 6697, 10080}


class Served:
    """One console; it keeps its port when it is stopped and started again.

    With a broker of cameras (FARMIQ_CLOUD_CAMERA_URL) their gateway runs beside it, with a bus
    (FARMIQ_AMQP_URL) the services of dead letters and of feed.
    """

    def __init__(self, db_url: str, **environment: str) -> None:
        self.port = next(port for port in iter(free_port, None) if port not in UNSAFE)
        self.url = f"http://127.0.0.1:{self.port}"
        self._db_url = db_url
        self._environment = environment
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self.app: FastAPI | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        patience.until(self._ready, "the console is ready")

    def stop(self) -> None:
        if self._thread is None:
            return
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), "the console did not stop within 60 s"
        self._thread = None

    async def _run(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        settings = CloudSettings.load(
            {
                "FARMIQ_CLOUD_DB_URL": self._db_url,
                "FARMIQ_AMQP_URL": "amqp://unused",
                **self._environment,
            }
        )
        server = http.HttpServer("farmiq-cloud", "test")
        self.app = server.app
        with contextlib.suppress(asyncio.CancelledError):
            async with (
                db.pool(self._db_url, name="pictures", min_size=0) as pool,
                asyncio.TaskGroup() as group,
            ):
                if settings.s3_url:
                    media.add_routes(settings, server, pool)
                group.create_task(service.run(settings, server.part("console")))
                if settings.mqtt_url:
                    group.create_task(gateway.run(settings, server))
                if "FARMIQ_AMQP_URL" in self._environment:
                    group.create_task(deadletter.run(settings, server))
                    group.create_task(feed.run(settings, server))
                group.create_task(http.serve(server, host="127.0.0.1", port=self.port))

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@contextlib.contextmanager
def streams(served: Served, cookie: str, count: int) -> Iterator[list[int]]:
    """That many live streams at once; gives the status of each."""
    with contextlib.ExitStack() as opened:
        statuses = []
        for _ in range(count):
            connection = client.HTTPConnection("127.0.0.1", served.port, timeout=60)
            opened.callback(connection.close)
            connection.request("GET", "/live", headers={"Cookie": cookie})
            answer = connection.getresponse()
            opened.callback(answer.close)
            statuses.append(answer.status)
            if answer.status == HTTPStatus.OK:
                answer.readline()
        yield statuses
