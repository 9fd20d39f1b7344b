"""A managed PostgreSQL gives no superuser: an owner who may make roles is enough for everything."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from typer.testing import CliRunner

from farmiq import cli
from farmiq.lab import stack
from farmiq.plumbing import db, migrations
from farmiq.services import SQL
from tests.conftest import Database
from tests.sql import catalog, security, two_companies
from tests.sql.two_companies import looking, owner, owners


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Database]:
    """A server of its own, since roles are the server's, with a database of a plain owner."""
    with stack.start(
        tmp_path / "stack", engines=("postgres-cloud",), given={}, say=lambda _: None
    ) as started:
        urls = started.environment
        with psycopg.connect(urls["FARMIQ_CLOUD_DB_ADMIN_URL"], autocommit=True) as superuser:
            superuser.execute(
                "create role plain_owner login createrole nosuperuser nobypassrls password 'x'"
            )
            superuser.execute("create database managed owner plain_owner")
        parts = urlsplit(urls["FARMIQ_CLOUD_DB_URL"])
        service = urlunsplit(parts._replace(path="/managed"))
        plain = f"plain_owner:x@{parts.hostname}:{parts.port}"
        yield Database(service, urlunsplit(parts._replace(netloc=plain, path="/managed")))


@pytest.mark.req("UP-02", "DB2-08")
def test_an_owner_without_superuser_does_everything(
    managed: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FARMIQ_CLOUD_DB_ADMIN_URL", managed.admin_url)
    monkeypatch.setenv("FARMIQ_STATE_DIR", str(tmp_path / "no stack"))
    monkeypatch.setenv("FARMIQ_NEW_PASSWORD", "long enough 1")
    for words in (
        ("migrate", "cloud", "--phase", "pre"),
        ("migrate", "cloud", "--phase", "post"),
        ("migrate", "cloud"),
        ("company", "add", "hill", "--name", "Hill Farm"),
        ("company", "add", "--name", "Its Own Tenant"),
        ("user", "add", "a@hill.farm", "--tenant", "hill"),
        ("user", "add", "a@hill.farm", "--tenant", "hill", "--role", "admin", "--super-admin"),
        ("edge", "invite", "--cluster", "e-1", "--tenant", "hill"),
        ("edge", "ls"),
        ("edge", "show", "e-1"),
        ("user", "token", "a@hill.farm"),
    ):
        done = CliRunner().invoke(cli.app, words)
        assert done.exit_code == 0, f"{words}: {done.output} {done.exception!r}"
    assert migrations.problem(managed.url, SQL["cloud"]) is None
    with looking(managed.url, done.stdout.strip()) as connection:
        assert connection.execute("select name from companies").fetchall() == [("Hill Farm",)]
        row = connection.execute("select email, is_super_admin, role from users "
                                 "join memberships using (user_id)").fetchall()  # fmt: skip
        assert row == [("a@hill.farm", True, "admin")]
    with psycopg.connect(managed.admin_url) as connection:
        assert security.problems(connection) == []
        # FORCE holds for the owner too: what services wrote is not the owner's to read.
        connection.execute("select 1 from companies")
        assert connection.execute("select count(*) from telemetry_readings").fetchone() == (0,)


def test_companies_stay_apart_on_it(
    managed: Database, engines: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    migrations.apply(managed.admin_url, SQL["cloud"])
    two = two_companies.make(managed.admin_url, service_url=managed.url)
    for person in ("ann", "bea"):
        with looking(managed.url, two.tokens[person]) as connection:
            for table in two_companies.for_people(managed.url):
                mine = owner(connection, table, two, two.home(person))
                assert owners(connection, table) == {mine}, table
    assert db.role_problem(managed.url) is None
    assert "plain_owner may create roles" in (db.role_problem(managed.admin_url) or "")

    # Its owner may count the rows of a month before it is dropped, and delete a company.
    with psycopg.connect(managed.url) as service:
        service.execute(
            "insert into telemetry_readings select tenant_id, event_id, farm_id, barn_id, "
            "device_id, metric_type, 1, unit, '2025-01-05', 't' from telemetry_readings"
        )
        service.execute("select fn_make_telemetry_month('2025-01-01')")
        outcomes = [
            service.execute("select fn_drop_archived_month('2025-01-01', %s)", (count,)).fetchone()
            for count in (1, 2, 2)
        ]
        assert outcomes == [("changed",), ("dropped",), ("missing",)]
    monkeypatch.setenv("FARMIQ_CLOUD_DB_ADMIN_URL", managed.admin_url)
    monkeypatch.setenv("FARMIQ_CLOUD_S3_URL", engines["FARMIQ_CLOUD_S3_URL"])
    done = CliRunner().invoke(cli.app, ["delete", "company", "one", "--confirm", "one"])
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    with psycopg.connect(managed.url) as service:
        for table in set(catalog.tables(managed.url)) - two_companies.NOT_OF_A_COMPANY:
            assert owners(service, table) == {owner(service, table, two, two.two)}, table
    with psycopg.connect(managed.admin_url) as connection:
        assert security.problems(connection) == []
