"""`farmiq farm` and `farmiq metric` on a real database."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from farmiq.cli import app
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.telemetry.readings import Reading, keep, rows


@pytest.fixture(autouse=True)
def _the_edge(edge_db: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FARMIQ_EDGE_DB_URL", edge_db.url)
    monkeypatch.setenv("FARMIQ_STATE_DIR", str(tmp_path / "no stack"))


def farmiq(*words: str) -> Result:
    return CliRunner().invoke(app, words)


async def test_farm_zone_command_marks_the_farms_days(pool: db.Pool, edge_db: Database) -> None:
    await keep(pool, [Reading(datetime.now(UTC), 1.0), Reading(datetime.now(UTC), 1.0, "d-2")])
    for _ in range(2):
        assert farmiq("farm", "set", "t-1", "f-1", "--timezone", "Asia/Bangkok").exit_code == 0
    assert json.loads(farmiq("farm", "ls", "--json").stdout) == [
        {
            "tenant_id": "t-1",
            "farm_id": "f-1",
            "timezone": "Asia/Bangkok",
            "set_here": True,
        }
    ]
    assert "Asia/Bangkok" in farmiq("farm", "ls").stdout
    assert rows(edge_db, "select device_id from telemetry_rezoned order by 1") == [
        ("d-1",),
        ("d-2",),
    ]
    assert rows(edge_db, "select action, subject from audit_log") == [("farm.set", "t-1/f-1")]


def test_metric_command_sets_sync_and_window(edge_db: Database) -> None:
    assert farmiq("metric", "set", "co2", "--sync", "agg", "--window", "1h").exit_code == 0
    assert farmiq("metric", "set", "co2", "--sync", "raw").exit_code == 0
    assert farmiq("metric", "set", "co2", "--sync", "agg").exit_code == 0
    assert json.loads(farmiq("metric", "ls", "--json").stdout) == [
        {"metric_type": "co2", "sync": "agg", "agg_window": "1h"}
    ]
    assert "1h" in farmiq("metric", "ls").stdout
    assert rows(edge_db, "select count(*) from audit_log") == [(3,)]


@pytest.mark.parametrize(
    "words",
    [
        ("farm", "set", "t-1", "f-1", "--timezone", "Asia/Atlantis"),
        ("farm", "set", "t/1", "f-1", "--timezone", "UTC"),
        ("metric", "set", "co2", "--sync", "sometimes"),
        ("metric", "set", "co2", "--sync", "agg", "--window", "5m"),
        ("metric", "set", "", "--sync", "agg"),
    ],
)
def test_invalid_setting_is_rejected_with_the_reason(words: tuple[str, ...]) -> None:
    done = farmiq(*words)
    assert done.exit_code == 2
    assert done.stderr.strip()
