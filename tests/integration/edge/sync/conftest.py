"""A pool on an edge database of the test's own, and settings that point nowhere."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from farmiq.config import EdgeSettings
from farmiq.plumbing import db, tokens
from tests.conftest import Database


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test", max_size=10) as opened:
        yield opened


@pytest.fixture
def settings(edge_db: Database, tmp_path: Path) -> EdgeSettings:
    tokens.write_new_key(tmp_path / "key.json", tmp_path / "keys.json")
    return EdgeSettings.load(
        {
            "FARMIQ_EDGE_DB_URL": edge_db.url,
            "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
            "FARMIQ_CLOUD_URL": "http://cloud.test",
            "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
            "OUTBOX_ARCHIVE_DIR": str(tmp_path / "archive"),
        }
    )
