"""An edge's console in a thread of its own, without broker, cloud or internet."""

import asyncio
import contextlib

from farmiq.config import EdgeSettings
from farmiq.edge.console import service
from farmiq.plumbing import http
from tests.browser.served import Served

AWAY = "http://127.0.0.1:1"


class ServedEdge(Served):
    async def _run(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        settings = EdgeSettings.load(
            {
                "FARMIQ_EDGE_DB_URL": self._db_url,
                "FARMIQ_EDGE_MQTT_URL": "mqtt://127.0.0.1:1",
                "FARMIQ_CLOUD_URL": AWAY,
                "FARMIQ_EDGE_KEY_FILE": "/nowhere",
                **self._environment,
            }
        )
        server = http.HttpServer("farmiq-edge", "test")
        self.app = server.app
        with contextlib.suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                group.create_task(service.run(settings, server.part("console")))
                group.create_task(http.serve(server, host="127.0.0.1", port=self.port))
