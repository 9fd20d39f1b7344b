"""The rules for Prometheus name metrics that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULES = (ROOT / "deploy" / "alerts.yaml").read_text(encoding="utf-8")


def defined() -> set[str]:
    """Metrics as the code names them; a counter may be written with or without `_total`."""
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "farmiq").rglob("*.py"))
    return {name.removesuffix("_total") for name in re.findall(r'"(farmiq_\w+)"', code)}


def test_every_metric_of_a_rule_is_made_by_the_code() -> None:
    expressions = re.findall(r"expr: (.+)", RULES)
    named = {name for text in expressions for name in re.findall(r"farmiq_\w+", text)}
    assert named
    assert {name.removesuffix("_total") for name in named} - defined() == set()


def test_cameras_broker_that_fills_up_or_was_set_back_raises_an_alert() -> None:
    """In the cloud these have no table of alerts: who runs it hears of them by these rules."""
    rules = dict(re.findall(r"- alert: (\w+)\n +expr: (.+)", RULES))
    assert rules["FarmiqCameraBrokerFills"] == "farmiq_camera_broker_store_ratio >= 0.5"
    assert "farmiq_camera_log_rewound_total" in rules["FarmiqCameraLogRewound"]
