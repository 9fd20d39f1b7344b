"""The cloud's services refuse a login that could see past row level security, in a sentence."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from farmiq import config, process
from farmiq.plumbing import db, ids
from tests.conftest import Database


def test_the_services_login_is_taken(cloud_db: Database) -> None:
    assert db.role_problem(cloud_db.url) is None


@pytest.mark.parametrize(
    ("right", "said"),
    [
        ("alter role {} bypassrls", "{} bypasses row level security"),
        ("alter role {} superuser", "{} is a superuser"),
        ("create table {0}_table (); alter table {0}_table owner to {0}", "owns public.{}_table"),
        ("create role {0}_able bypassrls; grant {0}_able to {0}", "can become {}_able, which"),
    ],
)
def test_powers_are_named(cloud_db: Database, right: str, said: str) -> None:
    name = f"r{ids.new().hex[-12:]}"
    make = f"create role {name} login password 'x' in role farmiq_service; {right.format(name)}"
    url = psycopg.conninfo.make_conninfo(cloud_db.admin_url, user=name, password="x")
    with psycopg.connect(cloud_db.admin_url, autocommit=True) as owner:
        owner.execute(make.encode())
        try:
            assert said.format(name) in (db.role_problem(url) or "")
        finally:
            owner.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
            for role in (name, f"{name}_able"):
                owner.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(role)))


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
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "cloud database: the role farmiq is a superuser, so row level security would not hold."
    )
