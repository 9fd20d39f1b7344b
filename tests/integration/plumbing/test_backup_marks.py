"""What a backup did is told at its site: by metrics of every process and by `farmiq doctor`."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import prometheus_client
import psycopg
import pytest
from typer.testing import CliRunner

from farmiq import cli, site_checks
from farmiq.plumbing import sealing
from farmiq.plumbing.backup import database, marks, repository
from tests.conftest import Database


@pytest.mark.req("BK-04")
async def test_failed_drill_of_the_cloud_is_told_until_one_succeeds(
    cloud_db: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FARMIQ_CLOUD_DB_ADMIN_URL", cloud_db.admin_url)
    monkeypatch.setenv("FARMIQ_STATE_DIR", str(tmp_path / "no stack"))
    monkeypatch.setenv("FARMIQ_BACKUP_URL", f"file://{tmp_path}/copies")
    monkeypatch.setenv("FARMIQ_BACKUP_KEY_FILE", str(tmp_path / "gone.key"))

    assert await _doctor(cloud_db) == ("no drill was made yet", "")
    drilled = CliRunner().invoke(cli.app, ["drill", "cloud", "--into", str(tmp_path / "scratch")])
    assert drilled.exit_code != 0
    detail, remedy = await _doctor(cloud_db)
    assert "cannot read the key" in detail
    assert "farmiq drill cloud" in remedy
    assert _shown("farmiq_backup_failed", "drill") == 1

    marks.note(cloud_db.admin_url, marks.DRILL)
    marks.note(cloud_db.admin_url, marks.VERIFY, problem="base 1 has other bytes")
    assert "base 1 has other bytes" in (await _doctor(cloud_db))[0]
    assert _shown("farmiq_backup_failed", "drill") == 0
    assert _shown("farmiq_backup_failed", "verify") == 1

    long_ago = datetime.now(UTC) - timedelta(days=101)
    marks.note(cloud_db.admin_url, marks.VERIFY)
    marks.note(cloud_db.admin_url, marks.DRILL, at=long_ago)
    assert await _doctor(cloud_db) == (
        "the last was 101 days ago",
        "`farmiq drill cloud` proves that the backup can be restored",
    )
    assert _shown("farmiq_backup_last_seconds", "drill") == pytest.approx(long_ago.timestamp())


@pytest.mark.req("BK-02")
def test_backup_on_the_disk_of_its_site_is_told_by_the_doctor(tmp_path: Path) -> None:
    sealing.write_new_key(tmp_path / "key")
    kept = repository.open_at(
        f"file://{tmp_path}/copies/edge", keys=sealing.read_keys(tmp_path / "key")
    )
    kept.prepare(is_first=True)
    now = datetime.now(UTC)
    base = database.Base(
        id="1", started_at=now, ended_at=now, first_wal="", last_wal="", size_bytes=1, sha256="",
        server_version="18", system_id="1",
    )  # fmt: skip
    kept.write_document(f"{database.BASE}1/about.json", base)
    kept.write_document(database.COVERED, database.Covered(at=now, segment=""))
    settings = {
        "FARMIQ_BACKUP_URL": f"file://{tmp_path}/copies",
        "FARMIQ_BACKUP_KEY_FILE": str(tmp_path / "key"),
        "FARMIQ_BACKUP_SPOOL": str(tmp_path),
    }
    detail, remedy = site_checks.backups_finding("edge", settings)
    assert "on the disk of what it is a copy of" in detail
    assert "mount another machine's disk" in remedy
    # Another file system: what it holds is never looked at.
    assert site_checks.backups_finding("edge", settings | {"FARMIQ_BACKUP_SPOOL": "/proc"})[1] == ""


async def _doctor(database: Database) -> tuple[str, str]:
    """As the services' role, which may read; the metrics are set on the way."""
    async with await psycopg.AsyncConnection.connect(database.url) as tx:
        marks.show((await marks.read(tx)).values())
        return await site_checks.drill("cloud", tx)


def _shown(metric: str, mark: str) -> float | None:
    return prometheus_client.REGISTRY.get_sample_value(metric, {"mark": mark})
