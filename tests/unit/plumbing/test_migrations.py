"""Which migrations are to be applied, and which histories are refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.plumbing import migrations
from farmiq.plumbing.migrations import Migration, MigrationError
from farmiq.services import SQL

FILES = [
    Migration("0001_pre_a", "select 1"),
    Migration("0002_post_b", "select 2"),
    Migration("0003_pre_c", "select 3"),
]


def applied(*files: Migration) -> dict[str, str]:
    return {file.name: file.checksum for file in files}


def folder(root: Path, *names: str) -> Path:
    (root / "migrations").mkdir()
    for name in names:
        (root / "migrations" / name).write_text(f"-- {name}", encoding="utf-8")
    return root


def test_files_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder(tmp_path, "0010_pre_ten.sql", "0002_post_two.sql", "0001_pre_one.sql", "README.md")

    read = migrations.read(tmp_path)

    assert [file.name for file in read] == ["0001_pre_one", "0002_post_two", "0010_pre_ten"]
    assert read[0].sql == "-- 0001_pre_one.sql"


@pytest.mark.parametrize(
    "name",
    ["1_pre_a", "0001_a", "0001_mid_a", "0001_pre_", "0001_pre_A", "0001-pre-a", "x0001_pre_a"],
)
def test_an_odd_name_is_refused(tmp_path: Path, name: str) -> None:
    folder(tmp_path, "0002_pre_fine.sql", f"{name}.sql")

    with pytest.raises(MigrationError, match="NNNN_pre_what") as refused:
        migrations.read(tmp_path)
    assert f"['{name}.sql']" in str(refused.value)


def test_two_of_one_number_are_refused(tmp_path: Path) -> None:
    folder(tmp_path, "0001_pre_a.sql", "0001_post_b.sql")

    with pytest.raises(MigrationError, match="two migrations of one number"):
        migrations.read(tmp_path)


@given(st.integers(0, 3))
def test_what_is_not_applied_is_pending_in_order(count: int) -> None:
    assert migrations.pending(FILES, applied(*FILES[:count])) == FILES[count:]


def test_an_edited_file_is_refused() -> None:
    with pytest.raises(MigrationError, match=r"edited since.*0001_pre_a"):
        migrations.pending([Migration("0001_pre_a", "select 9"), *FILES[1:]], applied(FILES[0]))


def test_a_removed_file_is_refused() -> None:
    with pytest.raises(MigrationError, match=r"does not know: \['0001_pre_a'\]"):
        migrations.pending(FILES[1:], applied(FILES[0]))


def test_a_file_behind_an_applied_one_is_refused() -> None:
    with pytest.raises(MigrationError, match=r"\['0002_post_b'\] would run behind 0003_pre_c"):
        migrations.pending(FILES, applied(FILES[0], FILES[2]))


def test_a_phase_takes_its_own_in_order() -> None:
    pre, post = [Migration("0004_pre_d", ""), Migration("0005_pre_e", "")], FILES[1:2]
    assert migrations.chosen([*pre, *post], "pre") == pre
    assert migrations.chosen(post, "post") == post
    assert migrations.chosen(post, "pre") == []
    assert migrations.chosen([*pre, *post], "all") == [*pre, *post]


def test_start_of_a_site_leaves_the_newest_cleanup_to_a_person() -> None:
    newest = Migration("0004_post_d", "")
    assert migrations.chosen([*FILES, newest], "needed") == FILES
    assert migrations.chosen([newest], "needed") == []


@pytest.mark.parametrize("phase", ["pre", "post"])
def test_a_cleanup_that_was_skipped_is_not_overtaken(phase: str) -> None:
    with pytest.raises(MigrationError, match="0002_post_b of an earlier version was never applied"):
        migrations.chosen(FILES[1:], phase)


def test_post_waits_for_pre() -> None:
    with pytest.raises(MigrationError, match="0001_pre_a comes first"):
        migrations.chosen(FILES[:2], "post")


# Files of before this rule; they are applied, and may not be edited.
BEFORE_THE_RULE = {"edge": "0016", "cloud": "0013"}


@pytest.mark.parametrize("site", ["edge", "cloud"])
def test_old_code_that_runs_on_does_not_wait_for_an_index(site: str) -> None:
    blocking = {
        file.name: tables
        for file in migrations.read(SQL[site])
        if file.name[:4] > BEFORE_THE_RULE[site] and (tables := migrations.blocks_writers(file))
    }
    assert blocking == {}, "build these indexes concurrently, in a file of their own"


@pytest.mark.parametrize(
    ("name", "sql", "tables"),
    [
        ("0001_pre_a", "create index a_idx on old (n);", ["old"]),
        ("0001_pre_a", "create unique index if not exists a_idx\n  on old (n);", ["old"]),
        ("0001_pre_a", "create index concurrently a_idx on old (n);", []),
        ("0001_pre_a", "create table new (n int);\ncreate index a_idx on new (n);", []),
        ("0001_pre_a", "do $$\nbegin\n  create index a_idx on old (n);\nend $$;", ["old"]),
        ("0001_pre_a", "-- small table old: few rows\ncreate index a_idx on old (n);", []),
        ("0001_pre_a", "-- small table old\ncreate index a_idx on old (n);", ["old"]),
        ("0001_post_a", "create index a_idx on old (n);", []),
    ],
)
def test_an_index_on_a_table_in_use_blocks_who_writes_to_it(
    name: str, sql: str, tables: list[str]
) -> None:
    assert migrations.blocks_writers(Migration(name, sql)) == tables
