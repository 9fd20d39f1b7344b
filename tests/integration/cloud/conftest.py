"""The cloud's settings on engines of the test's own, with one registered tenant."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from farmiq.cloud.identity.accounts import add_company
from farmiq.config import CloudSettings
from farmiq.edge.identity import read_key
from farmiq.plumbing import ids, tokens
from tests.conftest import Database
from tests.support import databases, vhosts


@dataclass(frozen=True)
class CloudSite:
    settings: CloudSettings
    database: Database
    key: dict[str, Any]

    def token(self, **changes: Any) -> str:
        claims: dict[str, Any] = {
            "subject": "edge-01",
            "issuer": self.settings.token_issuer,
            "audience": self.settings.token_audience,
            "now": datetime.now(UTC),
            "lifetime": timedelta(minutes=5),
            "tenants": ["t-001"],
        }
        return tokens.sign(self.key, **{**claims, **changes})

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with databases.connected(self.database.admin_url) as connection:
            # A service of this process may hold a lock, and goes on only when this has ended.
            connection.execute("set local lock_timeout = '1s'")
            return connection.execute(query.encode()).fetchall()


@pytest.fixture
def work_vhost(engines: dict[str, str]) -> Iterator[str]:
    """An AMQP address on which at most the work queues of the bus are declared, all empty."""
    with vhosts.lend(engines) as address:
        yield address


@pytest.fixture
def cloud(
    cloud_db: Database, work_vhost: str, tmp_path: Path, free_port: Callable[[], int]
) -> CloudSite:
    private, public = tmp_path / "key.json", tmp_path / "keys.json"
    tokens.write_new_key(private, public)
    with databases.connected(cloud_db.admin_url) as connection:
        add_company(connection, "t-001", name="One")
        add_company(connection, "t-002", name="Two")
    settings = CloudSettings.load(
        {
            "FARMIQ_CLOUD_DB_URL": cloud_db.url,
            "FARMIQ_AMQP_URL": work_vhost,
            "FARMIQ_EDGE_KEYS_FILE": str(public),
            "FARMIQ_CLOUD_HTTP_PORT": str(free_port()),
        }
    )
    return CloudSite(settings, cloud_db, read_key(private))


def event(**changes: Any) -> dict[str, Any]:
    """A telemetry event in the shape of document 002's examples."""
    return {
        "event_id": str(ids.new()),
        "event_type": "telemetry.ingested",
        "tenant_id": "t-001",
        "farm_id": "f-001",
        "barn_id": "b-001",
        "device_id": "d-010",
        "occurred_at": "2025-01-02T10:00:00Z",
        "trace_id": "trace-201",
        "payload": {"metric_type": "temperature", "metric_value": 26.4, "unit": "C"},
        **changes,
    }
