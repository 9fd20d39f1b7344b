"""What rules say, whom they are about, and what is wrong with them; the rules that ship."""

from typing import Any

import pytest

from farmiq.farm.alerts import rules
from farmiq.farm.alerts.defaults import DEFAULTS, with_defaults
from farmiq.farm.alerts.rules import Animals, applies, device_subject, problems, sentence
from farmiq.messages.alerts import AlertRule

HERE = device_subject("north", "3", "sensor-1")


def rule(**fields: Any) -> AlertRule:
    return AlertRule(
        **{
            "rule_id": "r",
            "signal": "telemetry.temperature",
            "condition": "above",
            "threshold": 30,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"farm_id": "north", "barn_id": "3", "for_s": 600},
            "temperature in barn 3 above 30 °C for 10 minutes",
        ),
        (
            {"device_id": "s1", "condition": "below", "threshold": 2.5},
            "temperature of s1 below 2.5 °C",
        ),
        ({"farm_id": "north"}, "temperature on north above 30 °C"),
        (
            {"condition": "rises", "threshold": 4, "window_s": 1800},
            "temperature rises by more than 4 °C within 30 minutes",
        ),
        (
            {"condition": "absent", "threshold": None, "for_s": 1800, "barn_id": "3"},
            "no temperature reading in barn 3 for 30 minutes",
        ),
        (
            {
                "signal": "kpi.weight_mean",
                "condition": "below",
                "threshold": 10,
                "baseline": "standard",
                "species": ["broiler"],
                "min_age_days": 7,
            },
            "mean weight more than 10 % below the breed standard (broiler; from 7 days of age)",
        ),
        (
            {"signal": "telemetry.soil_moisture", "threshold": 0.25},
            "soil moisture above 0.25",
        ),
    ],
)
def test_sentence_is_plain_english(fields: dict[str, Any], expected: str) -> None:
    assert sentence(rule(**fields)) == expected


def test_sentence_uses_the_names_that_people_gave() -> None:
    said = sentence(
        rule(for_s=600), subject=HERE, names={"3": "the old barn", "north": "North Farm"}
    )
    assert (
        said == "temperature of sensor-1 in the old barn on North Farm above 30 °C for 10 minutes"
    )


@pytest.mark.parametrize(
    ("fields", "batch", "expected"),
    [
        ({}, None, True),
        ({"farm_id": "north", "barn_id": "3", "device_id": "sensor-1"}, None, True),
        ({"farm_id": "south"}, None, False),
        ({"barn_id": "4"}, None, False),
        ({"device_id": "sensor-2"}, None, False),
        ({"species": ["broiler"]}, None, False),
        ({"species": ["broiler"]}, Animals("Broiler", 3), True),
        ({"species": ["pig"]}, Animals("broiler", 3), False),
        ({"min_age_days": 7}, Animals("broiler", 6), False),
        ({"min_age_days": 7}, Animals("broiler", 7), True),
        ({"max_age_days": 6}, Animals("broiler", 7), False),
        ({"max_age_days": 6}, None, False),
        # Nobody knows how old these are: chicks' rules are not about them, others are.
        ({"max_age_days": 6}, Animals("broiler", None), False),
        ({"min_age_days": 0}, Animals("broiler", None), False),
        ({"species": ["broiler"]}, Animals("broiler", None), True),
    ],
)
def test_rule_applies_where_all_of_its_scope_matches(
    fields: dict[str, Any],
    batch: Animals | None,
    expected: bool,  # noqa: FBT001
) -> None:
    assert applies(rule(**fields), HERE, batch) is expected


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"threshold": None}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"clear": 31}, "clear"),
        ({"clear": float("inf")}, "clear"),
        ({"condition": "below", "clear": 29}, "clear"),
        ({"condition": "rises"}, "window_s"),
        ({"condition": "falls", "window_s": 60, "threshold": -1}, "threshold"),
        ({"window_s": 60}, "window_s"),
        ({"condition": "differs"}, "baseline"),
        ({"condition": "rises", "window_s": 60, "baseline": "same_hour"}, "baseline"),
        ({"baseline": "standard"}, "baseline"),
        ({"signal": "kpi.weight_mean", "baseline": "same_hour"}, "baseline"),
        ({"condition": "absent", "for_s": 600}, "threshold"),
        ({"condition": "absent", "threshold": None}, "for_s"),
        (
            {
                "signal": "feed.days_left",
                "condition": "absent",
                "threshold": None,
                "for_s": 600,
            },
            "condition",
        ),
        ({"signal": "edge.heard"}, "condition"),
        ({"signal": "edge.nothing"}, "signal"),
        ({"signal": "kpi.happiness"}, "signal"),
        ({"signal": "edge.quarantine", "barn_id": "3"}, "barn_id"),
        ({"signal": "edge.quarantine", "species": ["pig"]}, "species"),
        ({"signal": "kpi.fcr", "device_id": "s1"}, "device_id"),
        ({"species": []}, "species"),
        ({"min_age_days": 8, "max_age_days": 7}, "max_age_days"),
    ],
)
def test_rule_that_cannot_work_names_the_field(fields: dict[str, Any], field: str) -> None:
    assert field in [name for name, _ in problems(rule(**fields))]


@pytest.mark.parametrize(
    ("metric_type", "value", "unit", "expected"),
    [
        ("temperature", 86.0, "°F", 30.0),
        ("temperature", 300.0, "K", 26.85),
        ("temperature", 30.0, "°C", 30.0),
        ("humidity", 86.0, "F", 86.0),
    ],
)
def test_temperatures_are_compared_in_celsius(
    metric_type: str, value: float, unit: str, expected: float
) -> None:
    assert rules.in_rule_unit(metric_type, value, unit) == pytest.approx(expected)


def test_defaults_can_all_be_used_and_have_ids_of_their_own() -> None:
    assert [(each.rule_id, problems(each)) for each in DEFAULTS if problems(each)] == []
    assert len({each.rule_id for each in DEFAULTS}) == len(DEFAULTS)
    assert all(sentence(each) for each in DEFAULTS)


def test_defaults_leave_brooding_alone() -> None:
    """34 °C is right for chicks on their first day, and deadly for grown birds."""
    assert _tripped(34, Animals("broiler", 0)) == set()
    assert "default.heat.poultry" in _tripped(34, Animals("broiler", 35))
    assert "default.cold.chicks" in _tripped(22, Animals("broiler", 0))
    assert _tripped(22, Animals("broiler", 35)) == set()


def test_defaults_without_a_batch_tell_deadly_heat_only() -> None:
    assert _tripped(37, None) == set()
    assert _tripped(39, None) == {"default.heat.any"}


@pytest.mark.parametrize("name", ["feed.low", "feed.empty"])
def test_default_about_feed_leaves_an_empty_barn_alone(name: str) -> None:
    feed = with_defaults([])[f"default.{name}"]
    assert not applies(feed, HERE, None)
    assert applies(feed, HERE, Animals("pig", 30))


@pytest.mark.parametrize(
    "name", ["ventilation.stopped", "ventilation.silent", "power.failed", "power.silent"]
)
def test_default_about_air_and_power_needs_no_batch(name: str) -> None:
    """Farms that register no batches have animals too."""
    assert applies(with_defaults([])[f"default.{name}"], HERE, None)


def test_own_rule_replaces_the_default_of_the_same_id() -> None:
    own = rule(rule_id="default.heat.any", threshold=40, enabled=False)
    assert with_defaults([own])["default.heat.any"] == own
    assert len(with_defaults([own, rule()])) == len(DEFAULTS) + 1


def _tripped(celsius: float, batch: Animals | None) -> set[str]:
    return {
        each.rule_id
        for each in DEFAULTS
        if each.signal == "telemetry.temperature"
        and each.condition in ("above", "below")
        and applies(each, HERE, batch)
        and rules.is_met(each, celsius)
    }
