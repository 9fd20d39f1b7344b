"""The list of requirements is sound, and every mark in the tests names a row of it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house import requirements
from tests.house.requirements import Mark

LISTED = """
# Requirements

| id | requirement | how it is shown |
|---|:---:|---|
| OB-01 | claimed on claim | unit test |
| DB2-05 | shows "Expected: 6 \\| Failed: 1" | rendered text |

Prose that names OB-99 is not a row.

| BY-01 | heat maps | beyond: planned |
"""


def test_ids_are_read_from_table_rows_in_order() -> None:
    assert requirements.parse_ids(LISTED) == ["OB-01", "DB2-05", "BY-01"]


def test_a_malformed_id_is_read_too_so_that_it_can_be_refused() -> None:
    assert requirements.parse_ids("| BY-01..06 | a range |") == ["BY-01..06"]


def test_ids_fall_into_shown_missing_and_beyond() -> None:
    report = requirements.fold(
        ["OB-01", "OB-02", "BY-01"], [Mark(requirement="OB-02", test="tests/a.py::test_x")]
    )
    assert report.shown == {"OB-02": ["tests/a.py::test_x"]}
    assert report.missing == ["OB-01"]
    assert report.beyond == ["BY-01"]
    assert report.unknown == {}
    assert report.summary == "1 of 2 shown"


def test_a_planned_id_counts_once_a_test_shows_it() -> None:
    report = requirements.fold(
        ["OB-01", "BY-01"], [Mark(requirement="BY-01", test="tests/a.py::test_x")]
    )
    assert report.beyond == []
    assert (report.shown_count, report.total) == (1, 2)


def test_a_parametrised_test_counts_once() -> None:
    marks = [Mark(requirement="OB-01", test=f"tests/a.py::test_x[{n}]") for n in ("1", "2-[]")]
    assert requirements.fold(["OB-01"], marks).shown == {"OB-01": ["tests/a.py::test_x"]}


def test_one_test_may_show_several_and_several_tests_one() -> None:
    marks = [
        Mark(requirement="OB-10", test="tests/b.py::test_y"),
        Mark(requirement="OB-11", test="tests/b.py::test_y"),
        Mark(requirement="OB-10", test="tests/a.py::test_x"),
    ]
    assert requirements.fold(["OB-10", "OB-11"], marks).shown == {
        "OB-10": ["tests/a.py::test_x", "tests/b.py::test_y"],
        "OB-11": ["tests/b.py::test_y"],
    }


def test_an_unknown_id_is_reported_with_the_test_that_names_it() -> None:
    report = requirements.fold(["OB-01"], [Mark(requirement="OB-77", test="tests/a.py::test_x")])
    assert report.unknown == {"OB-77": ["tests/a.py::test_x"]}
    assert report.missing == ["OB-01"]
    [complaint] = requirements.complaints(report)
    assert "OB-77" in complaint
    assert "tests/a.py::test_x" in complaint


def test_json_carries_lists_and_counts() -> None:
    report = requirements.fold(
        ["OB-01", "OB-02", "BY-01"],
        [Mark(requirement="OB-01", test="t.py::x"), Mark(requirement="ZZ-01", test="t.py::x")],
    )
    assert json.loads(requirements.as_json(report)) == {
        "shown": {"OB-01": ["t.py::x"]},
        "missing": ["OB-02"],
        "beyond": ["BY-01"],
        "unknown": {"ZZ-01": ["t.py::x"]},
        "total": 2,
        "shown_count": 1,
    }


@pytest.mark.parametrize(
    ("test", "short"),
    [
        ("tests/a.py::xx", "a.py::xx"),
        ("tests/a.py::xxx", "…py::xxx"),
        ("tests/unit/edge/a.py::xxx", "…py::xxx"),
    ],
)
def test_a_long_name_keeps_its_end(test: str, short: str) -> None:
    assert requirements.shorten(test, width=8) == short


def test_families_keep_the_order_of_the_list() -> None:
    grouped = requirements.by_family(["WV-01", "WV-02", "DB-01", "DB2-01"])
    assert grouped == {"WV": ["WV-01", "WV-02"], "DB": ["DB-01"], "DB2": ["DB2-01"]}


def test_listed_ids_are_unique() -> None:
    ids = listed_ids()
    assert sorted(ids) == sorted(set(ids))


def test_listed_ids_are_well_formed() -> None:
    ids = listed_ids()
    assert ids
    assert [each for each in ids if not requirements.WELL_FORMED.fullmatch(each)] == []


def test_the_page_names_the_requirements_that_no_test_shows() -> None:
    page = requirements.LIST.read_text(encoding="utf-8")
    (sentence,) = re.findall(r"Without a test: ([^.]*)\.", page)
    named = {
        requirement
        for file in (requirements.ROOT / "tests").rglob("*.py")
        for arguments in re.findall(r"mark\.req\(([^)]*)\)", file.read_text(encoding="utf-8"))
        for requirement in requirements.WELL_FORMED.findall(arguments)
    }
    contract = {name for name in listed_ids() if not name.startswith(requirements.BEYOND)}
    assert set(requirements.WELL_FORMED.findall(sentence)) == contract - named


def test_no_test_of_this_run_names_an_unknown_id(request: pytest.FixtureRequest) -> None:
    """The whole of `make test` is one run, so this looks at every test that it has."""
    recorder = requirements.Recorder()
    recorder.pytest_collection_modifyitems(request.session.items)

    assert requirements.fold(listed_ids(), recorder.marks).unknown == {}


def test_the_command_reports_and_complains(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    marks = [Mark(requirement=listed_ids()[0], test="t.py::x"), Mark(requirement="ZZ-99", test="y")]
    monkeypatch.setattr(requirements, "collect_marks", lambda: marks)

    assert requirements.main(["--json"]) == 1

    said = capsys.readouterr()
    assert json.loads(said.out)["unknown"] == {"ZZ-99": ["y"]}
    assert "ZZ-99" in said.err


def listed_ids() -> list[str]:
    return requirements.parse_ids(requirements.LIST.read_text(encoding="utf-8"))


def test_make_requirements_prints_json_alone_while_it_sets_up(tmp_path: Path) -> None:
    """The first run makes the environment; what that says is for people."""
    shutil.copy(requirements.ROOT / "Makefile", tmp_path)
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    environment = tmp_path / "tools" / "environment"
    environment.parent.mkdir()
    environment.write_text(
        "#!/bin/sh\necho setting up\nmkdir -p $1/bin\n"
        "printf '#!/bin/sh\\necho {}\\n' > $1/bin/python\nchmod +x $1/bin/python\ntouch $1/ready\n"
    )
    environment.chmod(0o755)
    done = subprocess.run(
        ["make", "--no-print-directory", "requirements", "JSON=1"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {}
    assert "setting up" in done.stderr
