"""The dashboards for Grafana are current, and every expression can be answered."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from farmiq.contracts import metrics
from farmiq.lab.stack import debian
from tests.support.engines import state_dir

ROOT = Path(__file__).parents[2]
BOARDS = {file.stem: file for file in sorted((ROOT / "deploy" / "grafana").glob("*.json"))}
# What Prometheus and its client add by themselves.
GIVEN = {"process_resident_memory_bytes": set[str]()}


def targets(board: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (target["expr"], target["legendFormat"])
        for panel in board["panels"]
        for target in panel["targets"]
    ]


def test_files_are_what_the_tool_makes(tmp_path: Path) -> None:
    before = {name: file.read_bytes() for name, file in BOARDS.items()}
    code = (ROOT / "tools" / "dashboards").read_text(encoding="utf-8")
    (tmp_path / "tools").mkdir()
    (tmp_path / "deploy").mkdir()
    copy = tmp_path / "tools" / "dashboards"
    copy.write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, copy], check=True)
    made = {f.stem: f.read_bytes() for f in (tmp_path / "deploy" / "grafana").glob("*.json")}
    assert made == before, "run `make docs`"
    assert set(made) == {"edge", "delivery", "cloud", "cameras"}


def test_every_metric_and_label_of_a_panel_is_in_the_catalogue() -> None:
    known = {entry.name: set(entry.labels) for entry in metrics.entries()} | GIVEN
    for name, file in BOARDS.items():
        board = json.loads(file.read_text(encoding="utf-8"))
        assert len({panel["title"] for panel in board["panels"]}) == len(board["panels"])
        for expression, legend in targets(board):
            named = re.findall(r"\b(?:farmiq|process)_\w+", expression)
            assert named
            assert set(named) <= known.keys(), (name, expression)
            labels = set(re.findall(r"(\w+)=~?\"", expression))
            labels |= set(re.findall(r"{{(\w+)}}", legend))
            for group in re.findall(r"by \(([^)]*)\)", expression):
                labels |= {label.strip() for label in group.split(",")}
            given = {label for metric in named for label in known[metric]} | {"instance"}
            assert labels <= given, (name, expression)


def test_prometheus_can_read_every_expression(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(
            expression
            for file in BOARDS.values()
            for expression, _ in targets(json.loads(file.read_text(encoding="utf-8")))
        )
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    promtool = debian.promtool_path(state_dir() / "engines")
    done = subprocess.run(
        [promtool, "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
