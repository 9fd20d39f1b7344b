"""People in psql, with logins and tokens got as docs/psql.md says."""

import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
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
from tests.support import pages

(MAKE_LOGIN, LOOK, LOOK_ELSEWHERE), (MAKE_TOKEN,) = (
    [block.text for block in pages.blocks("docs/psql.md") if block.language == wanted]
    for wanted in ("sql", "sh")
)


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
