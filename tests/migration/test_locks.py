"""What `farmiq upgrade check` foresees of a migration is what the server does."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from farmiq.plumbing import migration_locks, migrations
from farmiq.plumbing.migration_locks import EVERYBODY, NOBODY, WRITERS
from farmiq.plumbing.migrations import Migration
from farmiq.services import SQL
from tests.conftest import Database
from tests.support import release

MODES = {
    "AccessExclusiveLock": EVERYBODY,
    "ExclusiveLock": WRITERS,
    "ShareRowExclusiveLock": WRITERS,
    "ShareLock": WRITERS,
}
TABLES = (
    "select relname::text, oid, relfilenode from pg_class where relkind in ('r', 'p') "
    "and not relispartition and relnamespace = 'public'::regnamespace"
)
HELD = "select relation, mode from pg_locks where pid = pg_backend_pid() and relation is not null"
# Shapes that no migration has now.
SHAPES = {
    "alter table t alter column n type bigint": (EVERYBODY, {"rewrite"}),
    "alter table t add column m bigint generated always as identity": (EVERYBODY, {"rewrite"}),
    "alter table t add column m uuid default gen_random_uuid()": (EVERYBODY, {"rewrite"}),
    "alter table t add column m int not null default 0": (EVERYBODY, set()),
    "alter table t add constraint c check (n > 0)": (EVERYBODY, {"scan"}),
    "alter table t add constraint c check (n > 0) not valid": (EVERYBODY, set()),
    "alter table t set (fillfactor = 80)": (NOBODY, set()),
    "create index t_n_idx on t (n)": (WRITERS, {"index"}),
    "update t set n = 1": (NOBODY, {"update"}),
    "drop table t": (EVERYBODY, set()),
    "truncate t": (EVERYBODY, set()),
    "create table u (n int references t (n))": (WRITERS, set()),
    "do $$ begin alter table t drop column n; end $$": (EVERYBODY, set()),
}


# By the name of a table: its id, which stays, and that of its file, which a rewrite changes.
Tables = dict[str, tuple[int, int]]


def _tables(connection: psycopg.Connection) -> Tables:
    rows = connection.execute(TABLES).fetchall()
    return {name: (oid, node) for name, oid, node in rows}


def _held(connection: psycopg.Connection, before: Tables) -> dict[str, str]:
    names = {oid: name for name, (oid, _) in before.items()}
    found: dict[str, str] = {}
    for oid, mode in connection.execute(HELD).fetchall():
        if oid in names and mode in MODES:
            table = names[oid]
            worse = max(found.get(table, NOBODY), MODES[mode], key=migration_locks.BLOCKS.index)
            found[table] = worse
    return found


@pytest.mark.req("UP-03", "UP-05")
@pytest.mark.parametrize("site", list(SQL))
def test_every_migration_locks_what_is_foreseen(
    site: str, empty_db: Callable[[str], Database], tmp_path: Path
) -> None:
    database = empty_db(site)
    migrations.apply(database.admin_url, release.sql(site, tmp_path))
    with psycopg.connect(database.admin_url) as connection:
        connection.execute("set check_function_bodies = off")
        for function in sorted((SQL[site] / "functions").glob("*.sql")):
            connection.execute(function.read_bytes())
        for file in migrations.read(SQL[site]):
            connection.commit()
            before = _tables(connection)
            connection.commit()
            foreseen = migration_locks.locks(file)
            connection.execute(file.sql.replace("concurrently", "").encode())
            kept = {lock.table: lock.blocks for lock in foreseen if lock.blocks != NOBODY}
            assert kept == ({} if file.is_concurrent else _held(connection, before)), file.name
            after = _tables(connection)
            rewritten = {table for table, ids in before.items() if after[table] != ids}
            assert rewritten <= {lock.table for lock in foreseen if "rewrite" in lock.work}


@pytest.mark.parametrize(("sql", "expected"), SHAPES.items())
def test_other_shapes_too(
    empty_db: Callable[[str], Database], sql: str, expected: tuple[str, set[str]]
) -> None:
    with psycopg.connect(empty_db("edge").admin_url) as connection:
        connection.execute("create table t (n int unique)")
        connection.commit()
        before = _tables(connection)
        connection.commit()
        (lock,) = migration_locks.locks(Migration("0001_post_x", sql))
        assert (lock.table, lock.blocks, {*lock.work}) == ("t", *expected)
        connection.execute(sql.encode())
        assert _held(connection, before).get("t", NOBODY) == lock.blocks
