"""The oldest PostgreSQL we promise to run on: the suites of SQL and migrations on Debian's 15."""

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from farmiq import config

ROOT = Path(__file__).parents[2]
SUITES = ("tests/sql", "tests/migration", "tests/integration/plumbing/test_migrations.py")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.req("UP-01", "DB-01", "DB2-08")
def test_the_suites_of_sql_and_migrations_pass_on_postgresql_15() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider", *SUITES],
        cwd=ROOT,
        env=config.environment(over={"FARMIQ_STACK_POSTGRES": "15"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_the_server_is_the_one_that_was_asked_for(engines: dict[str, str]) -> None:

    expected = config.stack_postgres()
    for site in ("EDGE", "CLOUD"):
        with psycopg.connect(engines[f"FARMIQ_{site}_DB_URL"]) as connection:
            version = connection.info.server_version // 10000
        assert expected is None or version == int(expected)
