"""The edge's service of barn records, killed before it commits: the next try stores once."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from tests.conftest import Database
from tests.integration.edge.barn.test_api import DEAD, RECORDS
from tests.integration.edge.feed.conftest import keys, pool, rows
from tests.support import preloaded
from tests.support.until import until

__all__ = ["keys", "pool"]  # fixtures

TABLES = ("barn_records", "sync_outbox", "audit_log", "posted_events")


def counts(database: Database) -> set[int]:
    return {rows(database, f"select count(*) from {table}")[0][0] for table in TABLES}  # noqa: S608


@pytest.mark.timeout(180)
async def test_record_whose_service_was_killed_is_stored_once_at_the_next_try(
    edge_db: Database, keys: dict[str, str], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    with psycopg.connect(edge_db.admin_url) as owner:
        owner.execute("insert into farms (tenant_id, farm_id, timezone) values ('t-1','f-1','UTC')")
    port = free_port()
    environment = {
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
        "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
        "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
        "FARMIQ_EDGE_HTTP_PORT": str(port),
    }
    headers = {"Authorization": f"Bearer {keys['operator']}", "Idempotency-Key": "k"}

    async def posted() -> Any:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            try:
                answer = await client.post(RECORDS, json=DEAD, headers=headers, timeout=60)
            except httpx2.TransportError:
                return None
        return answer.json() if answer.status_code == 201 else None

    dying = preloaded.run(
        "edge-barn-records", {**environment, "FARMIQ_CRASH_AT": "edge_posting.before_commit"}
    )

    async def is_dead() -> bool:
        assert await posted() is None
        return dying.poll() is not None

    await until(is_dead, within_s=60)
    assert dying.returncode == -signal.SIGKILL
    assert counts(edge_db) == {0}

    living = preloaded.run("edge-barn-records", environment)
    try:
        first = await until(posted, within_s=60)
        assert await posted() == first
    finally:
        living.terminate()
        living.wait(timeout=20)
    assert counts(edge_db) == {1}
