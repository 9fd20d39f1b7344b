"""`farmiq alert` and `farmiq losses` on a real database: what a person sees, and bulk closing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from typer.testing import CliRunner

from farmiq.cli import app
from tests.conftest import Database

Terminal = Callable[..., Any]


@pytest.fixture
def farmiq(edge_db: Database, tmp_path: Path) -> Terminal:
    """1,200 warnings of one kind, and before them one of security and one that is critical."""
    with psycopg.connect(edge_db.admin_url) as owner:
        owner.execute(
            "insert into alerts (alert_id, kind, subject, severity, message, last_seen_at) values "
            "(gen_random_uuid(), 'device.not_registered', 't-1/d-9', 'security', 'who?', "
            "  now() - interval '2 days'), "
            "(gen_random_uuid(), 'sync.not_let_in', 't-1', 'critical', 'HTTP 403', now())"
        )
        owner.execute(
            "insert into alerts (alert_id, kind, subject, severity, message, seen_count) "
            "select gen_random_uuid(), 'media.refused', 't-1/cam-' || n, 'warning', 'bad', n "
            "from generate_series(1, 1200) n"
        )

    def run(*arguments: str, code: int) -> Any:
        result = CliRunner().invoke(
            app,
            ["alert", *arguments],
            env={"FARMIQ_EDGE_DB_URL": edge_db.url, "FARMIQ_STATE_DIR": str(tmp_path)},
        )
        assert result.exit_code == code, result.output
        return result

    return run


def test_alert_ls_shows_security_first_and_says_how_many_more(farmiq: Terminal) -> None:
    lines = farmiq("ls", code=3).stdout.splitlines()
    assert lines[0].startswith("security  device.not_registered")
    assert lines[2].startswith("critical  sync.not_let_in")
    assert lines[-1].startswith("and 1,102 more")
    told = farmiq("ls", "--json", "--limit", "2", code=3)
    assert [row["severity"] for row in json.loads(told.stdout)] == ["security", "critical"]
    assert json.loads(told.stdout)[0]["raised_at"].endswith("Z")
    assert "and 1,200 more" in told.stderr


@pytest.mark.parametrize(
    ("options", "subjects"),
    [
        (("--severity", "security"), ["t-1/d-9"]),
        (("--kind", "sync"), ["t-1"]),
        (("--kind", "media.refused", "--subject", "cam-1200"), ["t-1/cam-1200"]),
        (("--older-than", "24"), ["t-1/d-9"]),
    ],
)
def test_alert_ls_filters(farmiq: Terminal, options: tuple[str, ...], subjects: list[str]) -> None:
    found = json.loads(farmiq("ls", *options, "--json", code=3).stdout)
    assert [row["subject"] for row in found] == subjects


def test_alert_ls_without_any_says_nothing(farmiq: Terminal) -> None:
    assert farmiq("ls", "--kind", "no.such", code=0).stdout == "nothing\n"
    assert "is no severity" in farmiq("ls", "--severity", "loud", code=2).stderr


def test_alert_close_of_many_leaves_one_audit_row(farmiq: Terminal, edge_db: Database) -> None:
    assert "say which" in farmiq("close", code=2).stderr
    assert "1,200 would be closed" in farmiq("close", "media.refused", "--dry-run", code=0).stdout
    # A kind is meant as a whole here: its beginning closes nothing.
    assert "no open alert fits" in farmiq("close", "media", code=1).stderr
    assert "1,200 closed" in farmiq("close", "media.refused", code=0).stdout
    with psycopg.connect(edge_db.admin_url) as owner:
        ((actor, subject, detail),) = owner.execute(
            "select actor, subject, detail from audit_log where action = 'alert.close'"
        ).fetchall()
        (left,) = owner.execute(
            "select count(*) from alerts where closed_at is null or closed_by <> %s", (actor,)
        ).fetchall()
    assert (subject, detail["count"]) == ("media.refused", 1200)
    assert left == (2,)


def test_losses_ls_shows_the_newest_entries_and_all_that_was_dropped(
    edge_db: Database, tmp_path: Path
) -> None:
    env = {"FARMIQ_EDGE_DB_URL": edge_db.url, "FARMIQ_STATE_DIR": str(tmp_path)}
    empty = CliRunner().invoke(app, ["losses", "ls"], env=env)
    assert (empty.exit_code, empty.stdout) == (0, "nothing\n")
    with psycopg.connect(edge_db.admin_url) as owner:
        for number in (1, 2, 3):
            owner.execute(
                "insert into loss_ledger (loss_id, tenant_id, farm_id, barn_id, device_id, class, "
                "count, first_seq, last_seq, reason, occurred_at, recorded_at) values "
                "(%s, 't-1', 'f-1', 'b-1', %s, 'telemetry', %s, 5, 9, 'buffer full', now(), "
                "now() + %s * interval '1 s')",
                (str(UUID(int=9 - number)), f"d-{number}", number * 1000, number),
            )
    told = CliRunner().invoke(app, ["losses", "ls", "--limit", "2", "--json"], env=env)
    assert told.exit_code == 3
    document = json.loads(told.stdout)
    assert [row["device_id"] for row in document["losses"]] == ["d-3", "d-2"]
    assert document["totals"] == [{"tenant_id": "t-1", "class": "telemetry", "count": 6000}]
    assert told.stderr.startswith("and more")
    text = CliRunner().invoke(app, ["losses", "ls", "--device", "d-1"], env=env).stdout
    assert "t-1/f-1/b-1/d-1  buffer full  seq 5 to 9" in text
    assert text.endswith("in all 1,000 telemetry of t-1\n")
