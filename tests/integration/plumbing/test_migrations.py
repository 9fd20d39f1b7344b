"""Migrations on a real server: once, by whoever comes first, and never on another history."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from farmiq.plumbing import migrations, presence
from farmiq.plumbing.migrations import MigrationError
from farmiq.services import SQL
from tests.conftest import Database

Make = Callable[[str], Database]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three small migrations, a role file and a function that needs the second."""
    root = tmp_path / "sql"
    for name, text in {
        "roles.sql": "select 1;",
        "functions/fn_count.sql": """
            create or replace function fn_count() returns bigint language sql
            as $$ select count(*) from two $$;
        """,
        "migrations/0001_pre_one.sql": "create table one (n int); select pg_sleep(0.05);",
        "migrations/0002_pre_two.sql": "create table two (n int); insert into two values (1);",
    }.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def add(folder: Path, name: str, text: str) -> None:
    (folder / "migrations" / f"{name}.sql").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("site", ["edge", "cloud"])
def test_a_site_is_migrated_once_and_its_services_may_start(empty_db: Make, site: str) -> None:
    database = empty_db(site)
    assert migrations.problem(database.url, SQL[site]) == (
        "the database is empty: run `farmiq migrate`"
    )

    names = migrations.apply(database.admin_url, SQL[site])

    files = [file.name for file in migrations.read(SQL[site])]
    assert names == [migrations.baseline(SQL[site]), *files]
    assert migrations.apply(database.admin_url, SQL[site]) == []
    assert migrations.problem(database.url, SQL[site]) is None


@pytest.fixture
def released(folder: Path) -> Path:
    """The next version of `folder`: its history begins at what the first two led to."""
    newer = shutil.copytree(folder, folder.parent / "newer")
    shutil.rmtree(newer / "migrations")
    for name, text in {
        "schema/1_one.sql": "create table one (n int);",
        "schema/2_two.sql": "create table two (n int); insert into two values (1);",
        "schema/3_three.sql": "create table three (n int);",
        "migrations/0003_pre_three.sql": "create table three (n int);",
        "migrations/baseline.txt": "0002_pre_two\n",
    }.items():
        (newer / name).parent.mkdir(exist_ok=True)
        (newer / name).write_text(text, encoding="utf-8")
    return newer


def test_empty_database_is_built_from_the_schema_files(empty_db: Make, released: Path) -> None:
    database = empty_db("edge")

    assert migrations.apply(database.admin_url, released) == ["0002_pre_two", "0003_pre_three"]

    assert migrations.apply(database.admin_url, released) == []
    assert migrations.problem(database.url, released) is None
    with psycopg.connect(database.admin_url) as connection:
        assert connection.execute("select fn_count() from three").fetchall() == []
        assert connection.execute("select fn_count()").fetchone() == (1,)


def test_schema_file_that_fails_leaves_an_empty_database(empty_db: Make, released: Path) -> None:
    database = empty_db("edge")
    broken = released / "schema" / "3_three.sql"
    broken.write_text("create table three (n int); select 1 / 0;", encoding="utf-8")

    with pytest.raises(psycopg.errors.DivisionByZero):
        migrations.apply(database.admin_url, released)

    with psycopg.connect(database.admin_url) as connection:
        assert connection.execute("select to_regclass('one')").fetchone() == (None,)
    assert migrations.problem(database.url, released) == (
        "the database is empty: run `farmiq migrate`"
    )


def test_database_of_the_last_release_gets_only_what_came_since(
    empty_db: Make, folder: Path, released: Path
) -> None:
    database = empty_db("edge")
    migrations.apply(database.admin_url, folder)

    assert "0003_pre_three" in (migrations.problem(database.url, released) or "")
    assert migrations.apply(database.admin_url, released) == ["0003_pre_three"]
    assert migrations.problem(database.url, released) is None
    assert migrations.problem(database.url, folder) is None


def test_database_older_than_the_last_release_is_refused(
    empty_db: Make, folder: Path, released: Path
) -> None:
    database = empty_db("edge")
    (folder / "migrations" / "0002_pre_two.sql").unlink()
    (folder / "functions" / "fn_count.sql").unlink()
    migrations.apply(database.admin_url, folder)

    with pytest.raises(MigrationError, match=r"older than 0002_pre_two.*deploy/last-release"):
        migrations.apply(database.admin_url, released)
    assert "older than 0002_pre_two" in (migrations.problem(database.url, released) or "")
    with psycopg.connect(database.admin_url) as connection:
        assert connection.execute("select to_regclass('three')").fetchone() == (None,)


def test_two_runners_side_by_side_apply_each_file_once(empty_db: Make, folder: Path) -> None:
    database = empty_db("edge")

    with ThreadPoolExecutor(4) as workers:
        done = list(workers.map(lambda _: migrations.apply(database.admin_url, folder), range(4)))

    assert sorted(done) == [[], [], [], ["0001_pre_one", "0002_pre_two"]]
    with psycopg.connect(database.admin_url) as connection:
        assert connection.execute("select fn_count()").fetchone() == (1,)


def test_a_new_file_is_waited_for_and_then_applied(empty_db: Make, folder: Path) -> None:
    database = empty_db("edge")
    migrations.apply(database.admin_url, folder)
    add(folder, "0003_pre_three", "create table three (n int);")

    assert migrations.problem(database.url, folder) == (
        "migrations are not applied, run `farmiq migrate`: ['0003_pre_three']"
    )
    assert migrations.apply(database.admin_url, folder) == ["0003_pre_three"]
    assert migrations.problem(database.url, folder) is None


def test_between_pre_and_post_both_versions_may_start(empty_db: Make, folder: Path) -> None:
    database = empty_db("edge")
    migrations.apply(database.admin_url, folder)
    older = shutil.copytree(folder, folder.parent / "older")
    add(folder, "0003_pre_three", "create table three (n int);")
    add(folder, "0004_post_four", "drop table one;")

    with pytest.raises(MigrationError, match="0003_pre_three comes first"):
        migrations.apply(database.admin_url, folder, phase="post")
    assert migrations.apply(database.admin_url, folder, phase="pre") == ["0003_pre_three"]
    assert migrations.problem(database.url, folder) is None
    assert migrations.problem(database.url, older) is None
    assert migrations.apply(database.admin_url, folder, phase="pre") == []
    assert migrations.apply(database.admin_url, folder, phase="post") == ["0004_post_four"]
    assert migrations.problem(database.url, folder) is None
    assert "does not know: ['0003_pre_three', '0004_post_four']" in (
        migrations.problem(database.url, older) or ""
    )


@pytest.mark.req("UP-03", "UP-05")
@pytest.mark.parametrize("phase", ["post", "all"])
def test_the_post_step_is_refused_while_code_runs_that_does_not_know_it(
    empty_db: Make, folder: Path, phase: str
) -> None:
    database = empty_db("edge")
    migrations.apply(database.admin_url, folder)
    add(folder, "0003_post_three", "drop table one;")
    for session, told in (
        ("edge-ingress-gateway", "edge-ingress-gateway of a version that does not say which"),
        ("edge-console-live 0002", "edge-console-live of 0002"),
    ):
        with (
            psycopg.connect(database.url, application_name=session),
            pytest.raises(MigrationError, match=rf"0003_post_three was not applied.*{told}"),
        ):
            migrations.apply(database.admin_url, folder, phase=phase)
    with psycopg.connect(database.url, application_name="edge-ingress-gateway 0003"):
        assert migrations.apply(database.admin_url, folder, phase=phase) == ["0003_post_three"]


def test_code_that_starts_while_the_post_step_runs_undoes_it(
    empty_db: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = empty_db("edge")
    migrations.apply(database.admin_url, folder)
    add(folder, "0003_post_three", "drop table one;")
    old = [presence.Code(("edge-ingress-gateway",), None)]
    seen = iter([[], old])
    monkeypatch.setattr(presence, "running", lambda _: next(seen))
    with pytest.raises(MigrationError, match="still runs"):
        migrations.apply(database.admin_url, folder, phase="post")
    with psycopg.connect(database.admin_url) as connection:
        assert connection.execute("select to_regclass('one') is not null").fetchone() == (True,)


def test_a_changed_history_is_refused_and_nothing_is_applied(empty_db: Make, folder: Path) -> None:
    database = empty_db("edge")
    migrations.apply(database.admin_url, folder)
    add(folder, "0001_pre_one", "create table another (n int);")
    add(folder, "0003_pre_three", "create table three (n int);")

    with pytest.raises(MigrationError, match=r"edited since; write new ones: \['0001_pre_one'\]"):
        migrations.apply(database.admin_url, folder)
    assert "edited since" in (migrations.problem(database.url, folder) or "")
    with psycopg.connect(database.admin_url) as connection:
        assert connection.execute("select to_regclass('three')").fetchone() == (None,)


def test_a_database_that_is_ahead_of_this_version_is_refused(empty_db: Make, folder: Path) -> None:
    database = empty_db("edge")
    older = shutil.copytree(folder, folder.parent / "older")
    add(folder, "0003_post_three", "create table three (n int);")
    migrations.apply(database.admin_url, folder)

    assert "this version does not know: ['0003_post_three']" in (
        migrations.problem(database.url, older) or ""
    )
    with pytest.raises(MigrationError, match="does not know"):
        migrations.apply(database.admin_url, older)


def test_a_file_that_fails_leaves_nothing_and_can_be_mended(empty_db: Make, folder: Path) -> None:
    database = empty_db("edge")
    add(folder, "0003_pre_three", "create table three (n int); select 1 / 0;")

    with pytest.raises(psycopg.errors.DivisionByZero):
        migrations.apply(database.admin_url, folder)
    add(folder, "0003_pre_three", "create table three (n int);")

    assert migrations.apply(database.admin_url, folder) == ["0003_pre_three"]


def test_a_service_can_read_the_history_but_not_rewrite_it(empty_db: Make, folder: Path) -> None:
    database = empty_db("edge")
    migrations.apply(database.admin_url, folder)

    with (
        psycopg.connect(database.url) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("delete from schema_migrations")


def test_a_migration_that_needs_a_table_in_use_lets_others_pass_and_gives_up(
    empty_db: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_WITHIN_S", 0.05)
    monkeypatch.setattr(migrations, "PATIENCE_S", 0.2)
    database = empty_db("edge")
    migrations.apply(database.admin_url, folder)
    add(folder, "0003_pre_three", "alter table two add column m int;")

    with psycopg.connect(database.admin_url) as busy:
        busy.execute("insert into two values (2)")
        with pytest.raises(MigrationError, match=r"0003_pre_three was not applied.*End long"):
            migrations.apply(database.admin_url, folder)

    assert migrations.apply(database.admin_url, folder) == ["0003_pre_three"]


def test_an_index_is_built_concurrently_and_one_that_was_not_finished_is_replaced(
    empty_db: Make, folder: Path
) -> None:
    database = empty_db("edge")
    migrations.apply(database.admin_url, folder)
    build = "create unique index concurrently if not exists two_n_idx on two (n);\n"
    add(folder, "0003_pre_three", f"-- Found by n.\n{build}comment on index two_n_idx is 'x';\n")
    with psycopg.connect(database.admin_url, autocommit=True) as owner:
        owner.execute("insert into two values (1)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            migrations.apply(database.admin_url, folder)
        owner.execute("delete from two where ctid = (select max(ctid) from two)")

        assert migrations.apply(database.admin_url, folder) == ["0003_pre_three"]
        valid = owner.execute(
            "select indisvalid from pg_index where indexrelid = 'two_n_idx'::regclass"
        ).fetchall()
    assert valid == [(True,)]
