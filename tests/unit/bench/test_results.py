"""Results: pass or short follows from value and target, and nobody else's entry is lost."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import cameras, machine, results, vision
from bench.results import Result
from farmiq.cli import app

MACHINE = machine.description()


def result(target_id: str, value: float, target: str) -> Result:
    return Result(id=target_id, what="w", value=value, target=target, runs=[value])


@pytest.mark.parametrize(
    ("value", "target", "ok"),
    [
        (0.3, ">= 0.3", True),
        (0.299, ">= 0.3", False),
        (511.9, "< 512", True),
        (512, "< 512", False),
        (2, "<= 2", True),
    ],
)
def test_ok_follows_from_value_and_target(value: float, target: str, *, ok: bool) -> None:
    assert result("P1", value, target).ok is ok


def test_what_did_not_do_its_work_is_no_result() -> None:
    few, many = (
        cameras.Fleet(
            cameras=count, resident_mb=mb, images_per_s=5.0, chunks=10 * count, bytes_each=30_000,
            us_per_chunk={"gateway": 900.0}, took_s=40.0, awake_s=2.0, broker_errors=0,
            complete=True,
        ) for count, mb in ((20, 100.0), (200, 104.0))
    )  # fmt: skip
    found = cameras.result(cameras.Plan(), [(few, many)] * 3)
    assert (found.value, found.target, found.ok) == (4.0, "<= 64", True)
    found = cameras.result(cameras.Plan(), [(few, replace(many, complete=False))] * 3)
    assert (found.value, found.ok, found.entry()["sound"]) == (4.0, False, False)


def test_the_median_of_the_rounds_counts() -> None:
    one = results.of_runs("P1", "w", [0.5, 0.1, 0.4], target=">= 0.3", detail={})

    assert (one.value, one.runs, one.ok) == (0.4, [0.5, 0.1, 0.4], True)


def test_entries_of_other_targets_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FILE", tmp_path / "results.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "bench.md")
    results.save([result("P5", 1.2, "<= 2"), result("P11", 9, "< 250")], machine=MACHINE)
    results.save([result("P1", 0.4, ">= 0.3"), result("P5", 3.0, "<= 2")], machine=MACHINE)

    found = json.loads((tmp_path / "results.json").read_text())
    assert [(one["id"], one["value"], one["ok"]) for one in found] == [
        ("P1", 0.4, True),
        ("P5", 3.0, False),
        ("P11", 9, True),
    ]
    assert {"id", "what", "value", "target", "ok", "runs", "detail"} <= set(found[0])
    page = (tmp_path / "bench.md").read_text()
    assert "| P5 | w | 3 | <= 2 | **short** | 3 |" in page


def test_command_prints_what_stands_behind_each_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measured(*_: object) -> list[Result]:
        detail = {"after 20 sessions": 0.034, "models": 1200}
        return [replace(result("P21", 0.031, "<= 0.05"), detail=detail)]

    monkeypatch.setattr(vision, "measure", measured)
    answer = CliRunner().invoke(app, ["bench", "vision"])
    assert answer.exit_code == 0, answer.output
    assert "P21  after 20 sessions: 0.034\nP21  models: 1,200\n" in answer.output


def test_what_is_in_the_repository_is_as_the_bench_writes_it() -> None:
    assert results.PAGE.read_text() == results.page(results.load())
    for one in results.load():
        sign_and_bound = result(one["id"], one["value"], one["target"])
        assert one["ok"] is (sign_and_bound.ok and one.get("sound", True))


def test_cpu_time_counts_children_that_have_ended() -> None:
    before = machine.cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)

    assert machine.cpu_s(os.getpid()) - before >= 0.05
