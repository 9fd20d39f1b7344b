"""`farmiq company` and `farmiq user` on a real database."""

import json
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from farmiq.cli import app, terminal
from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from tests.conftest import Database
from tests.support import databases

ANN, BEA = "ann@hill.farm", "bea@hill.farm"


@pytest.fixture
def people(cloud_db: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Ann, signed in twice, and Bea, once."""
    monkeypatch.setenv("FARMIQ_CLOUD_DB_ADMIN_URL", cloud_db.admin_url)
    with databases.connected(cloud_db.admin_url) as connection:
        company = add_company(connection, "hill", name="Hill Farm", timezone="Asia/Bangkok")
        for email in (ANN, BEA):
            add_user(connection, email, company_id=company, password="long enough 1", role="admin")
        for email in (ANN, ANN, BEA):
            open_sign_in(connection, email, lasts=timedelta(hours=1))
    return cloud_db


def run(*arguments: str, expect: int = 0) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == expect, result.output
    return json.loads(result.stdout) if expect == 0 else result.stderr


def sign_ins(database: Database) -> dict[str, int]:
    with databases.connected(database.admin_url) as connection:
        rows = connection.execute(
            "select u.email, count(s.token_hash) from users u left join sign_ins s using (user_id) "
            "group by u.email"
        ).fetchall()
    return dict(rows)


@pytest.mark.usefixtures("people")
def test_companies_and_people_are_listed() -> None:
    (company,) = run("company", "ls")
    listed = run("user", "ls", "--tenant", "hill")

    assert (company["tenant_id"], company["name"], company["people"]) == ("hill", "Hill Farm", 2)
    assert [(each["email"], each["role"], each["sign_ins"]) for each in listed] == [
        (ANN, "admin", 2),
        (BEA, "admin", 1),
    ]
    assert "no company 'elsewhere'" in run("user", "ls", "--tenant", "elsewhere", expect=1)


@pytest.mark.usefixtures("people")
def test_log_that_is_cut_says_so_and_tells_the_time_of_this_machine() -> None:
    (newest,) = run("user", "log", "--limit", "1")

    cut = CliRunner().invoke(app, ["user", "log", "--limit", "1"]).stdout.splitlines()
    whole = CliRunner().invoke(app, ["user", "log", "--limit", "5"]).stdout.splitlines()

    assert cut[0].startswith(terminal.local(newest["at"]))
    assert cut[1:] == ["and more; --limit shows more"]
    assert len(whole) == 5
    assert whole[-1].endswith("admin")


def test_new_password_ends_all_sign_ins_of_that_person_alone(people: Database) -> None:
    said = run("user", "password", " Ann@Hill.farm ", "--password", "another one 2")

    assert said["sign_ins_ended"] == 2
    assert sign_ins(people) == {ANN: 0, BEA: 1}
    assert run("user", "log", ANN)[0]["action"] == "password"


def test_removed_person_is_signed_out_and_what_they_did_keeps_their_name(people: Database) -> None:
    user_id = run("user", "ls")[0]["user_id"]

    said = run("user", "rm", ANN, "--yes")

    assert said["sign_ins_ended"] == 2
    assert sign_ins(people) == {BEA: 1}
    log = run("user", "log", ANN)
    assert [each["action"] for each in log] == ["remove", "sign_in", "sign_in", "add"]
    assert {each["user_id"] for each in log} == {user_id}
    assert log[0]["actor"].startswith("cli")


def test_rights_that_change_are_noted_and_a_repeat_is_not(people: Database) -> None:
    with databases.connected(people.admin_url) as connection:
        row = connection.execute("select company_id from companies").fetchone()
        assert row is not None
        for role in ("viewer", "viewer"):
            add_user(connection, BEA, company_id=row[0], password="long enough 1", role=role)

    assert [(each["action"], each["detail"]) for each in run("user", "log", BEA)] == [
        ("change", "viewer"),
        ("sign_in", "command"),
        ("add", "admin"),
    ]


@pytest.mark.usefixtures("people")
def test_nobody_of_that_name_is_said_in_a_sentence() -> None:
    assert "farmiq user ls" in run("user", "rm", "eve@hill.farm", "--yes", expect=2)
    asked = CliRunner().invoke(app, ["user", "rm", "eve@hill.farm"], input="y\n")
    assert (asked.exit_code, "Remove" in asked.output) == (2, False)
    assert "farmiq user ls" in run(
        "user", "password", "eve@hill.farm", "--password", "long enough 1", expect=2
    )


@pytest.mark.usefixtures("people")
def test_new_password_without_a_terminal_says_where_it_is_taken_from() -> None:
    for command in (["add", ANN, "--tenant", "hill"], ["password", ANN]):
        assert run("user", *command, expect=2) == (
            "set FARMIQ_NEW_PASSWORD: there is no terminal to ask for it\n"
        )


def test_person_is_not_removed_without_a_yes(people: Database) -> None:
    result = CliRunner().invoke(app, ["user", "rm", ANN], input="n\n")

    assert result.exit_code == 1
    assert ANN in sign_ins(people)
