"""`farmiq masterdata`: all rows of a file or none, with every reason."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from farmiq import cli
from farmiq.cloud.identity.accounts import add_company
from tests.conftest import Database
from tests.support import databases

FARMS = "farm_id,name,timezone\nnorth,North,Asia/Bangkok\n"
BARNS = "farm_id,barn_id,name,capacity\nnorth,1,One,20000\nnorth,2,Two,\n"
BATCHES = (
    "batch_id,farm_id,barn_id,species,placed_count,placed_on\na,north,1,broiler,100,2026-05-01\n"
)


@pytest.fixture
def company(cloud_db: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FARMIQ_CLOUD_DB_URL", cloud_db.url)
    monkeypatch.setenv("FARMIQ_STATE_DIR", str(tmp_path / "no stack"))
    with databases.connected(cloud_db.admin_url) as owner:
        add_company(owner, "hill", name="Hill Farm")


def run(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli.app, ["masterdata", *words], input=text)


def load(kind: str, text: str, *more: str) -> Result:
    return run("import", kind, "-", "--tenant", "hill", "--json", *more, text=text)


@pytest.mark.usefixtures("company")
def test_files_are_imported_and_listed() -> None:
    for kind, text, rows in (("farms", FARMS, 1), ("barns", BARNS, 2), ("batches", BATCHES, 1)):
        done = load(kind, text)
        assert json.loads(done.stdout) == {"rows": rows, "changed": rows, "dry_run": False}
        assert json.loads(load(kind, text).stdout)["changed"] == 0
    listed = json.loads(run("ls", "barns", "--tenant", "hill", "--json").stdout)
    assert [(barn["barn_id"], barn["capacity"]) for barn in listed] == [("1", 20000), ("2", None)]
    assert "nothing; `farmiq masterdata import" in run("ls", "metrics", "--tenant", "hill").output


@pytest.mark.usefixtures("company")
def test_dry_run_changes_nothing() -> None:
    assert json.loads(load("farms", FARMS, "--dry-run").stdout)["changed"] == 1
    assert json.loads(run("ls", "farms", "--tenant", "hill", "--json").stdout) == []


@pytest.mark.usefixtures("company")
def test_file_with_bad_lines_changes_nothing_and_names_them() -> None:
    load("farms", FARMS)
    done = load("barns", BARNS + "north,3,,5\nnorth,4,Four,-5\n")
    assert done.exit_code == 1
    problems = json.loads(done.stdout)["problems"]
    assert [(problem["line"], problem["field"]) for problem in problems] == [
        (4, "name"),
        (5, "capacity"),
    ]
    assert json.loads(run("ls", "barns", "--tenant", "hill", "--json").stdout) == []


@pytest.mark.usefixtures("company")
def test_row_without_its_farm_changes_nothing() -> None:
    done = load("barns", BARNS)
    assert done.exit_code == 1
    problems = json.loads(done.stdout)["problems"]
    assert [(problem["line"], problem["field"]) for problem in problems] == [
        (2, "farm_id"),
        (3, "farm_id"),
    ]
    assert problems[0]["reason"] == "barn north 1: its farm is not registered"


@pytest.mark.usefixtures("company")
def test_unknown_company_is_refused() -> None:
    done = run("import", "farms", "-", "--tenant", "dale", text=FARMS)
    assert done.exit_code == 1
    assert "its tenant is not registered" in done.output


def test_columns_of_a_kind_are_said_and_unknown_kinds_refused() -> None:
    columns = json.loads(run("columns", "barns", "--json").stdout)
    assert [row["column"] for row in columns if row["needed"]] == ["farm_id", "barn_id", "name"]
    unknown = run("columns", "animals")
    assert unknown.exit_code == 2
    assert "there is no kind 'animals'; choose farms, barns" in unknown.output


@pytest.mark.usefixtures("company")
def test_example_of_a_breed_standard_is_imported_and_says_that_it_is_one() -> None:
    done = run("example", "--tenant", "hill", "--json")
    assert json.loads(done.stdout) == {"rows": 171, "changed": 171, "dry_run": False}
    listed = json.loads(
        run("ls", "breed_standards", "--tenant", "hill", "--limit", "1000", "--json").stdout
    )
    assert {row["breed"] for row in listed} == {"example"}
    assert all(row["source"].startswith("EXAMPLE made up") for row in listed)
    mixed = [row["weight_kg"] for row in listed if row["sex"] == "mixed"]
    assert mixed == sorted(mixed)
