"""The cloud's services refuse a login that could see past row level security, in a sentence."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from farmiq import config, process
from farmiq.plumbing import db
from tests.conftest import Database


def test_the_services_login_is_taken(cloud_db: Database) -> None:
    assert db.role_problem(cloud_db.url) is None


FUNCTION = "create function planted() returns int language sql as 'select 1'; "
# How a login gets the power, with `planted` for the login, and what is said of it.
POWERS = {
    "alter role planted bypassrls": "planted bypasses row level security",
    "alter role planted superuser": "planted is a superuser",
    "alter role planted createrole": "planted may create roles and give itself others",
    "alter role planted replication": "planted may replicate the whole server",
    "create table t (); alter table t owner to planted": "planted owns public.t",
    "create schema x; create table x.t (); alter table x.t owner to planted": "planted owns x.t",
    "create view v as select 1; alter view v owner to planted": "planted owns public.v",
    "create foreign data wrapper w; create server s foreign data wrapper w; "
    "create foreign table t () server s; alter table t owner to planted": "planted owns public.t",
    f"{FUNCTION} alter function planted() owner to planted": (
        "planted owns the function public.planted"
    ),
    "create schema x authorization planted": "planted owns the schema x",
    "do $$ begin "
    "execute format('alter database %I owner to planted', current_database()); end $$": (
        "planted owns the database"
    ),
    "create role able bypassrls; grant able to planted": (
        "planted can become able, which bypasses row level security"
    ),
    "create role able createrole; create role between; grant able to between; "
    "grant between to planted": "planted can become able, which may create roles",
    "grant farmiq_jobs to planted": (
        "planted can become farmiq_jobs, which owns the function public.begin_session"
    ),
    "grant pg_execute_server_program to planted": (
        "planted can become pg_execute_server_program, which runs programs on the server"
    ),
    "grant pg_write_server_files to planted": (
        "planted can become pg_write_server_files, which reads or writes files of the server"
    ),
    "grant pg_read_server_files to planted": (
        "planted can become pg_read_server_files, which reads or writes files of the server"
    ),
}
HARMLESS = (
    "alter role planted createdb",
    "grant pg_monitor to planted",
    "create role able; grant able to planted",
    "create sequence s; alter sequence s owner to planted",
)


@pytest.mark.req("DB2-08")
@pytest.mark.parametrize("right", POWERS)
def test_powers_are_named(cloud_db: Database, right: str) -> None:
    assert POWERS[right] in (_said_of_a_login_with(cloud_db, right) or "")


@pytest.mark.parametrize("right", HARMLESS)
def test_a_login_without_them_is_taken(cloud_db: Database, right: str) -> None:
    assert _said_of_a_login_with(cloud_db, right) is None


def _said_of_a_login_with(database: Database, right: str) -> str | None:
    with psycopg.connect(database.admin_url) as owner:
        owner.execute("create role planted login in role farmiq_service")
        owner.execute(right.encode())
        owner.execute("set local session authorization planted")
        said = db.login_problem(owner)
        # Roles belong to the whole server, where other tests run.
        owner.rollback()
    return said


async def test_services_do_not_start_under_the_owner(cloud_db: Database) -> None:
    with pytest.raises(process.WrongRoleError, match="Set FARMIQ_CLOUD_DB_URL to the login"):
        await process.Schema("cloud", cloud_db.admin_url).until_right()
    await process.Schema("cloud", cloud_db.url).until_right()


@pytest.mark.req("DB2-08")
def test_the_command_says_why_and_fails(
    cloud_db: Database, vhost: str, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": []}')
    done = subprocess.run(
        [sys.executable, "-m", "farmiq", "run", "cloud"],
        env=config.environment(
            over={
                "FARMIQ_CLOUD_DB_URL": cloud_db.admin_url,
                "FARMIQ_AMQP_URL": vhost,
                "FARMIQ_EDGE_KEYS_FILE": str(keys),
                "FARMIQ_CLOUD_HTTP_PORT": str(free_port()),
                "FARMIQ_STATE_DIR": str(tmp_path),
            }
        ),
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "cloud database: the role farmiq is a superuser, so row level security would not hold."
    )
