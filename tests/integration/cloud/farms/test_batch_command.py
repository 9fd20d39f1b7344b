"""`farmiq batch`: placed, listed, shown, closed; and what is refused."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from farmiq import cli
from tests.conftest import Database
from tests.integration.cloud.farms.test_masterdata_command import BARNS, FARMS, company, load
from tests.support import databases

__all__ = ["company"]  # the fixture: a company that has nothing yet

PLACED = (
    "--farm", "north", "--barn", "1", "--species", "broiler", "--count", "100", "--placed-on",
    "2026-05-01",
)  # fmt: skip


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.app, ["batch", *words, "--tenant", "hill"])


def listed(*words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(run("ls", "--json", *words).stdout)
    return rows


@pytest.fixture
def farm(company: None) -> None:
    del company
    load("farms", FARMS)
    load("barns", BARNS)


@pytest.mark.usefixtures("farm")
def test_batch_is_added_listed_shown_and_closed(cloud_db: Database) -> None:
    assert "added a: 100 broiler in north/1" in run("add", "a", *PLACED).output
    assert [(row["batch_id"], row["status"]) for row in listed()] == [("a", "active")]
    assert listed("--status", "planned") == []
    assert listed("--barn", "2") == []
    done = json.loads(run("close", "a", "--on", "2026-06-05", "--json").stdout)
    assert (done["closed_on"], done["status"]) == ("2026-06-05", "closed")
    shown = run("show", "a").output
    assert "placed_count" in shown
    assert "2026-06-05" in shown
    assert run("add", "b", *PLACED[:-1], "2026-06-06").exit_code == 0
    # Without a day it is today at the farm.
    with databases.connected(cloud_db.admin_url) as owner:
        today = owner.execute("select fn_local_date('Asia/Bangkok', fn_now())::text").fetchone()
    assert (json.loads(run("close", "b", "--json").stdout)["closed_on"],) == today


@pytest.mark.usefixtures("farm")
@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("add", "a", *PLACED), 1, "there is a batch 'a' already"),
        (("add", "b", *PLACED), 1, "batch a is in barn 1 at that time; nothing was changed"),
        (("add", "b", *PLACED[:2], "--barn", "9", *PLACED[4:]), 1, "its barn is not registered"),
        (("add", "b", *PLACED[:-3], "0", *PLACED[-2:]), 2, "placed_count"),
        (("add", "no id", *PLACED), 2, "batch_id"),
        (("close", "x"), 1, "hill has no batch 'x'"),
        (("close", "a", "--on", "2026-04-30"), 2, "`closed_on` is before `placed_on`"),
        (("show", "x"), 1, "hill has no batch 'x'"),
        (("ls", "--status", "dead"), 2, "planned, active, closed"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], code: int, reason: str) -> None:
    run("add", "a", *PLACED)
    before = listed()
    done = run(*words)
    assert (done.exit_code, reason in done.output) == (code, True), done.output
    assert listed() == before
