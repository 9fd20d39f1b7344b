"""A million messages from one device: taken whole, in bounded memory."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from farmiq import config
from farmiq.lab.stack import mosquitto, processes
from farmiq.messages import topics
from farmiq.messages.topics import Place
from farmiq.plumbing.messaging import mqtt
from tests.conftest import Database
from tests.support import brokers, databases
from tests.support.engines import state_dir
from tests.support.until import until

COUNT = 1_000_000
MAX_BYTES = 200 * 2**20
PLACE = Place("t-1", "f-1", "b-1", "d-1")


def line(number: int) -> bytes:
    body = {
        "schema_version": "1.0",
        "event_id": str(UUID(int=(7 << 76) + number)),
        "trace_id": "flood",
        "tenant_id": "t-1",
        "device_id": "d-1",
        "event_type": "telemetry.reading",
        "ts": datetime.now(UTC).isoformat(),
        "payload": {"metric_type": "co2", "metric_value": 400.5, "unit": "ppm"},
    }
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_million_messages_of_one_device_are_taken_in_bounded_memory(
    edge_db: Database,
    tmp_path: Path,
    free_port: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FARMIQ_STACK_MQTT_SYNC", "2m")
    with brokers.nats(tmp_path) as broker:
        # A session first, so that all of it waits when the gateway comes.
        async with mqtt.connected(
            broker.gateway_url, client_id="edge-ingress-gateway", topics=topics.UP
        ) as session:
            await session.until_up()
        _publish(broker.devices_url, tmp_path)
        gateway = processes.spawn(
            processes.Launch(
                argv=(sys.executable, "-m", "farmiq", "run", "edge-ingress-gateway"),
                environment=config.environment(
                    over={
                        "FARMIQ_EDGE_DB_URL": edge_db.url,
                        "FARMIQ_EDGE_MQTT_URL": broker.gateway_url,
                        "FARMIQ_EDGE_MQTT_CLIENT_ID": "edge-ingress-gateway",
                        "FARMIQ_EDGE_HTTP_PORT": str(free_port()),
                        "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
                        "FARMIQ_EDGE_KEY_FILE": "none",
                    }
                ),
                folder=tmp_path,
                log=tmp_path / "gateway.log",
            ),
            detach=False,
        )
        most = 0

        def all_stored() -> bool:
            nonlocal most
            found = processes.look(gateway.pid)
            assert found is not None, (tmp_path / "gateway.log").read_text()[-2000:]
            most = max(most, processes.memory_bytes(found))
            with databases.connected(edge_db.admin_url) as connection:
                row = connection.execute("select count(*) from telemetry_raw").fetchone()
            return row == (COUNT,)

        await until(all_stored, within_s=1500)
        gateway.terminate()
        gateway.wait(20)
        assert most < MAX_BYTES


def _publish(url: str, folder: Path) -> None:
    programs = mosquitto.find(state_dir() / "engines")
    parts = urlsplit(url)
    command = [
        str(programs.publisher), "-h", str(parts.hostname), "-p", str(parts.port),
        "-u", str(parts.username), "-P", str(parts.password),
        "-q", "1", "-M", "1000", "-t", topics.telemetry(PLACE, "co2"), "-l",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, env=programs.environment(folder)
    ) as publisher:
        assert publisher.stdin is not None
        for number in range(COUNT):
            publisher.stdin.write(line(number))
        publisher.stdin.close()
        assert publisher.wait(600) == 0
