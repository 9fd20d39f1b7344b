"""The databases that all other tests stand on: nobody finds what another left."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests import conftest
from tests.conftest import Database
from tests.support import databases
from tests.support.databases import Connection


@contextmanager
def lent(engines: dict[str, str]) -> Iterator[Connection]:
    server = engines["FARMIQ_EDGE_DB_ADMIN_URL"]
    with (
        databases.lend(server, conftest._template(engines, "edge")) as name,
        psycopg.connect(databases.named(server, name), autocommit=True) as connection,
    ):
        yield connection


def identity(connection: Connection) -> tuple[int, str]:
    query = "select oid::int, datname from pg_database where datname = current_database()"
    ((oid, name),) = connection.execute(query).fetchall()
    return oid, name


def contents(connection: Connection) -> list[tuple[object, ...]]:
    return connection.execute(
        "select (select count(*) from devices), (select array_agg(v) from devices_version v), "
        "(select count(*) from telemetry_raw), (select count(*) from api_keys)"
    ).fetchall()


@pytest.mark.parametrize("rows", [1, 5000])  # 5000 are more than are deleted one by one
def test_rows_are_gone_and_back_as_in_the_template(engines: dict[str, str], rows: int) -> None:
    with lent(engines) as connection:
        oid, name = identity(connection)
        before = contents(connection)
        connection.execute(
            "insert into telemetry_raw select gen_random_uuid(), 't', 'f', 'b', 'd', now(), "
            "'m', 1, 'u', now(), true from generate_series(1, %s)",
            (rows,),
        )
        connection.execute("delete from devices where device_id = 'd-1'")
        assert contents(connection) != before
    with lent(engines) as connection:
        again, other = identity(connection)
        assert (again, other != name) == (oid, True)
        assert contents(connection) == before


@pytest.mark.parametrize(
    "change",
    [
        "create table left_behind ()",
        "drop table api_keys cascade",
        "alter table devices disable row level security, disable trigger all",
        "create or replace function fn_now() returns timestamptz language sql as 'select now()'",
        "analyze devices",
        "do $$ begin execute format('alter database %I set jit = on', current_database()); end $$",
    ],
)
def test_one_whose_catalogue_was_changed_is_not_lent_again(
    engines: dict[str, str], change: str
) -> None:
    with lent(engines) as connection:
        oid, _ = identity(connection)
        connection.execute(change.encode())
    with lent(engines) as connection:
        assert identity(connection)[0] != oid


def test_connection_that_is_used_again_is_as_new(edge_db: Database) -> None:
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute("set lock_timeout = '7s'; create temp table left_behind ()")
        pid = connection.info.backend_pid
    with databases.connected(edge_db.admin_url) as connection:
        assert connection.info.backend_pid == pid
        assert connection.execute("show lock_timeout").fetchone() == ("0",)
        connection.execute("create temp table left_behind ()")


def test_connection_that_was_ended_is_not_used_again(edge_db: Database) -> None:
    with databases.connected(edge_db.admin_url) as connection:
        pid = connection.info.backend_pid
    with psycopg.connect(edge_db.admin_url) as owner:
        owner.execute("select pg_terminate_backend(%s, 60000)", (pid,))
    with databases.connected(edge_db.admin_url) as connection:
        assert connection.info.backend_pid != pid
