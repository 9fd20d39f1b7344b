"""Forecasts over HTTP and on the command line, from the figures that the product computed."""

import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from farmiq import cli
from farmiq.cloud.analytics.forecast import ForecastApi
from farmiq.cloud.identity.sign_in import SignIns
from tests.integration.cloud.analytics.conftest import Analytics, at, on
from tests.integration.cloud.analytics.test_api import Reader, reader

__all__ = ["reader"]  # a fixture

TRUTH = [7.5 * math.exp(-math.exp(1.64 - 0.042 * age)) for age in range(60)]


@pytest.fixture
async def farm(analytics: Analytics, reader: Reader) -> Analytics:
    """Its batch `grown` was weighed on most of 28 days, three animals a day."""
    analytics.farm("g", barns=("2",))
    analytics.batch("grown", farm_id="g", barn_id="2", target_weight_kg=2.5)
    for age in (age for age in range(1, 28) if age % 4):
        for minute, share in enumerate((0.93, 1.0, 1.07)):
            weight_kg = round(TRUTH[age] * share, 3)
            events = analytics.weighing(
                at(age, 9, minute), weight_kg, farm_id="g", barn_id="2", batch_id="grown"
            )
            await analytics.send(*events)
    await analytics.settle()
    app: Any = reader.client._transport
    ForecastApi(SignIns(analytics.pool, lasts=timedelta(hours=1))).add_to(app.app)
    return analytics


@pytest.mark.usefixtures("farm")
async def test_forecast_by_http_is_near_the_truth_and_of_the_own_company(reader: Reader) -> None:
    answer = await reader.get("batches/grown/forecast", on=on(35))
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["method"], found["weighed_days"]) == ("gompertz", 21)
    assert found["weight"]["low_kg"] < TRUTH[35] < found["weight"]["high_kg"]
    reached = next(age for age, weight_kg in enumerate(TRUTH) if weight_kg >= 2.5)
    assert found["target"]["earliest_on"] <= on(reached) <= (found["target"]["latest_on"] or "9")
    few = (await reader.get("batches/b/forecast")).json()
    assert few["method"] is None
    assert few["reason"] == "there are weighings of 2 days; 3 are needed"
    assert (await reader.get("batches/grown/forecast", who="bea")).status_code == 404
    assert (await reader.get("batches/none/forecast")).status_code == 404
    assert (await reader.get("batches/grown/forecast", who="")).status_code == 401
    for wrong in ({"on": "2026-02-30"}, {"target_kg": 0}, {"target_kg": "nan"}, {"unknown": 1}):
        assert (await reader.get("batches/grown/forecast", **wrong)).status_code == 400


def test_forecast_command_prints_days_and_reasons(
    farm: Analytics, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FARMIQ_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("FARMIQ_CLOUD_DB_URL", farm.site.database.url)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(cli.app, ["kpi", "forecast", *arguments, "--tenant", "t-001"])

    shown = run("grown", "--on", on(35))
    assert shown.exit_code == 0, shown.output
    assert "curve      gompertz" in shown.output
    assert "target     2.5 kg on 2026-" in shown.output
    assert json.loads(run("grown", "--json", "--on", on(35)).output)["weight"]["on"] == on(35)
    few = run("b")
    assert few.exit_code == 3
    assert "none: there are weighings of 2 days" in few.output
    assert run("nobody").exit_code == 1
