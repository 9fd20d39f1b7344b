"""`farmiq upgrade check` on databases of the last release and of this version."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from farmiq import cli, site_checks, upgrade
from farmiq.messages.contract import CONTRACT
from farmiq.plumbing import migrations, sealing
from farmiq.plumbing.backup import database, repository
from farmiq.services import SQL
from tests.conftest import Database
from tests.support import release

Check = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def edge(empty_db: Callable[[str], Database], tmp_path: Path) -> Database:
    """A database of the last release."""
    database = empty_db("edge")
    migrations.apply(database.admin_url, release.sql("edge", tmp_path))
    return database


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, edge: Database, tmp_path: Path) -> Check:
    """Ask as a script does; the findings by their names."""
    monkeypatch.setenv("FARMIQ_EDGE_DB_ADMIN_URL", edge.admin_url)
    monkeypatch.setenv("FARMIQ_STATE_DIR", str(tmp_path / "no stack"))

    def asked(*options: str) -> tuple[int, dict[str, Any]]:
        done = CliRunner().invoke(cli.app, ["upgrade", "check", "edge", "--json", *options])
        assert done.exit_code in {0, 3}, done.output
        seen = json.loads(done.stdout)["sites"]["edge"]
        return done.exit_code, seen | {each["name"]: each for each in seen["findings"]}

    return asked


NO_BACKUP = ("--backup-hours", "0")


@pytest.mark.req("UP-05")
def test_a_release_is_told_what_an_upgrade_does_and_nothing_is_changed(
    check: Check, edge: Database
) -> None:
    code, seen = check(*NO_BACKUP)
    assert code == 0, seen
    assert seen["revision"] == migrations.baseline(SQL["edge"])
    assert seen["target"] == migrations.newest(SQL["edge"])
    files = migrations.read(SQL["edge"])
    assert [(each["name"], each["phase"]) for each in seen["steps"]] == [
        (file.name, file.phase) for file in files
    ]
    locked = {lock["table"]: lock for step in seen["steps"] for lock in step["locks"]}
    assert locked["alerts"]["blocks"] == "everybody"
    assert locked["quarantine"]["blocks"] == "nobody"
    assert locked["cloud_batches"]["size_bytes"] > 0
    assert check(*NO_BACKUP)[1]["steps"] == seen["steps"]
    migrations.apply(edge.admin_url, SQL["edge"])
    code, seen = check(*NO_BACKUP)
    assert (code, seen["steps"]) == (0, [])
    assert "up to date" in seen["schema"]["detail"]


def test_people_read_the_same(check: Check) -> None:
    check()
    done = CliRunner().invoke(cli.app, ["upgrade", "check", "edge", *NO_BACKUP])
    assert "alerts (" in done.stdout
    assert "blocks everybody" in done.stdout
    assert done.stdout.endswith("go\n")


@pytest.mark.req("UP-05")
def test_without_a_young_backup_it_does_not_begin(
    check: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, seen = check()
    assert (code, seen["backup"]["go"]) == (3, False)
    assert "FARMIQ_BACKUP_URL" in seen["backup"]["detail"]
    sealing.write_new_key(tmp_path / "key")
    monkeypatch.setenv("FARMIQ_BACKUP_URL", f"file://{tmp_path}/copies")
    monkeypatch.setenv("FARMIQ_BACKUP_KEY_FILE", str(tmp_path / "key"))
    assert check()[1]["backup"]["detail"] == "there is none"
    now = datetime.now(UTC)
    kept = repository.open_at(
        f"file://{tmp_path}/copies/edge", keys=sealing.read_keys(tmp_path / "key")
    )
    kept.prepare(is_first=True)
    base = database.Base(
        id="1", started_at=now, ended_at=now, first_wal="", last_wal="", size_bytes=1, sha256="",
        server_version="18", system_id="1",
    )  # fmt: skip
    kept.write_document("base/1/about.json", base)
    assert check()[1]["backup"]["go"]
    sealing.write_new_key(tmp_path / "another.key")
    monkeypatch.setenv("FARMIQ_BACKUP_KEY_FILE", str(tmp_path / "another.key"))
    code, seen = check()
    assert (code, seen["backup"]["go"]) == (3, False)
    assert "its key is not in the key file" in seen["backup"]["detail"]
    detail, remedy = site_checks.backups_finding("edge", os.environ)
    assert "its key is not in the key file" in detail
    assert remedy == "correct FARMIQ_BACKUP_URL and its key"
    assert not upgrade.check_backup(lambda: now - timedelta(hours=5), hours=4).go
    assert upgrade.check_backup(lambda: now - timedelta(hours=3), hours=4).go


def test_a_long_transaction_that_holds_a_table_is_named(
    check: Check, edge: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "LONG_TRANSACTION_S", 0)
    with psycopg.connect(edge.admin_url, application_name="somebody") as holding:
        holding.execute("select count(*) from alerts")
        code, seen = check(*NO_BACKUP)
        assert code == 3
        assert "somebody (pid" in seen["transactions"]["detail"]
        assert str(holding.info.backend_pid) in seen["transactions"]["remedy"]
    assert check(*NO_BACKUP)[0] == 0


def test_a_table_that_is_too_large_to_lock_and_a_full_disk_are_named(
    check: Check, edge: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(edge.admin_url) as connection:
        connection.execute(
            "insert into cloud_batches (tenant_id, batch_id, farm_id, barn_id, placed_on) "
            "select 't', 'b-' || n, 'f', 'b', '2026-01-01' from generate_series(1, 2000) n"
        )
    monkeypatch.setattr(upgrade, "BYTES_PER_S", 1000)
    monkeypatch.setattr(upgrade, "LEAST_FREE_BYTES", 2**80)
    code, seen = check(*NO_BACKUP)
    assert code == 3
    assert "0165_pre_entered_intakes keeps readers and writers of" in seen["locks"]["detail"]
    assert seen["disk"]["go"] is False


def test_old_code_keeps_the_post_step_waiting_but_not_the_beginning(
    edge: Database, tmp_path: Path
) -> None:
    older = tmp_path / "released" / "farmiq" / "edge" / "sql"
    (older / "migrations" / "9001_pre_x.sql").write_text("create table x (n int);")
    (older / "migrations" / "9002_post_y.sql").write_text("drop table alerts;")
    with psycopg.connect(edge.url, application_name="edge-console"):
        seen = upgrade.look("edge", edge.admin_url, older)
        named = {each.name: each for each in seen.findings}
        assert seen.go
        assert "refused while old code runs: edge-console" in named["post step"].detail
        migrations.apply(edge.admin_url, older, phase="pre")
        seen = upgrade.look("edge", edge.admin_url, older)
        assert not seen.go
    assert upgrade.look("edge", edge.admin_url, older).go


def test_a_database_that_is_too_old_is_refused(edge: Database, check: Check) -> None:
    with psycopg.connect(edge.admin_url) as connection:
        connection.execute("delete from schema_migrations where name >= '0130'")
        connection.execute(
            "insert into schema_migrations (name, checksum) values ('0001_pre_x', '')"
        )
    code, seen = check(*NO_BACKUP)
    assert code == 3
    assert "older than" in seen["schema"]["detail"]


def test_other_sites_may_be_one_version_ahead() -> None:
    near = [("the cloud", "1", CONTRACT + 1), ("edge e-1", "0.1.0", None)]
    assert upgrade.check_skew(near).go
    assert not upgrade.check_skew([*near, ("edge e-2", "9", CONTRACT + 2)]).go
