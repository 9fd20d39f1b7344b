"""docs/psql.md, followed to the letter: its commands are read from the page and run in psql."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner

from farmiq import cli
from farmiq.plumbing import ids
from tests.conftest import Database
from tests.sql import two_companies
from tests.sql.two_companies import Two

PAGE = (Path(__file__).parents[2] / "docs" / "psql.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
(MAKE_LOGIN, LOOK, LOOK_ELSEWHERE), (MAKE_TOKEN,) = (
    [text for kind, text in BLOCKS if kind == wanted] for wanted in ("sql", "sh")
)
ASK = "select * from telemetry_latest;"


@dataclass(frozen=True, slots=True)
class Person:
    """A login and a token, both got as the page says."""

    url: str
    token: str

    def types(self, block: str, *, company: object = "") -> list[list[str]]:
        """The block as it stands, but for the token and the company; the rows that psql shows."""
        return self.runs(block.replace("TOKEN", self.token).replace("0198…", str(company)))

    def runs(self, script: str) -> list[list[str]]:
        done = subprocess.run(
            ["psql", "--no-psqlrc", "--quiet", "-At", "-v", "ON_ERROR_STOP=1", self.url],
            input=script,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [line.split("|") for line in done.stdout.splitlines()]


@pytest.fixture
def people(
    cloud_db: Database, two: Two, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Person]]:
    del two
    monkeypatch.setenv("FARMIQ_CLOUD_DB_ADMIN_URL", cloud_db.admin_url)
    parts = urlsplit(cloud_db.admin_url)
    logins = {name: f"{name}_{ids.new().hex}" for name in ("ann", "bea", "sue")}
    with psycopg.connect(cloud_db.admin_url, autocommit=True) as owner:
        try:
            for login in logins.values():
                owner.execute(MAKE_LOGIN.replace("anna", login).replace("…", "x").encode())
            yield {
                name: Person(
                    urlunsplit(parts._replace(netloc=f"{login}:x@{parts.hostname}:{parts.port}")),
                    _token(name),
                )
                for name, login in logins.items()
            }
        finally:
            for login in logins.values():
                owner.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(login)))


def _token(name: str) -> str:
    command, *words = shlex.split(MAKE_TOKEN, comments=True)
    assert command == "farmiq"
    email = two_companies.email(name)
    done = CliRunner().invoke(cli.app, [email if "@" in word else word for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


@pytest.mark.req("DB2-09", "FN-12")
def test_two_people_see_the_rows_of_their_company_and_no_other(people: dict[str, Person]) -> None:
    for name, tenant in (("ann", "one"), ("bea", "two")):
        user, *rows = people[name].types(LOOK)
        assert len(user) == 1
        assert [row[0] for row in rows] == [tenant]


@pytest.mark.req("DB2-09")
def test_a_super_admin_sees_home_and_then_the_chosen_one(
    people: dict[str, Person], two: Two
) -> None:
    _, *rows = people["sue"].types(LOOK)
    assert [row[0] for row in rows] == ["one"]
    for company in (two.one, two.two):
        _, first, second, chosen, *rows = people["sue"].types(LOOK_ELSEWHERE, company=company)
        assert [first[:2], second[:2]] == [[str(two.one), "one"], [str(two.two), "two"]]
        assert chosen == [str(company)]
        assert [row[0] for row in rows] == [two.tenant(company)]


@pytest.mark.req("DB2-09", "FN-12")
def test_a_regular_user_may_not_choose_another(people: dict[str, Person], two: Two) -> None:
    _, only, chosen, *rows = people["ann"].types(LOOK_ELSEWHERE, company=two.one)
    assert only[:2] == [str(two.one), "one"]
    assert chosen == [str(two.one)]
    assert [row[0] for row in rows] == ["one"]
    with pytest.raises(AssertionError, match="you may look at your own company only"):
        people["ann"].types(LOOK_ELSEWHERE, company=two.two)


def test_nobody_sees_anything_outside_a_transaction_or_without_a_token(
    people: dict[str, Person],
) -> None:
    ann = people["ann"]
    assert ann.runs(ASK) == []
    without = [line for line in LOOK.splitlines() if line not in {"begin;", "commit;"}]
    assert [len(row) for row in ann.types("\n".join(without))] == [1]
    with pytest.raises(AssertionError, match="nobody is signed in with this token"):
        ann.runs(LOOK)


def test_the_page_asks_what_these_tests_look_at() -> None:
    for block in (LOOK, LOOK_ELSEWHERE):
        assert ASK in block
        assert block.splitlines()[0] == "begin;"
        assert block.splitlines()[-1] == "commit;"
