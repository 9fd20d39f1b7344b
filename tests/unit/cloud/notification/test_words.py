"""What a message says."""

from datetime import UTC, datetime
from typing import Any, get_args
from uuid import UUID

import pytest

from farmiq.cloud.notification.words import MAX_SUBJECT, Facts, render, trial, with_link
from farmiq.messages.alerts import AlertRule, EndReason

OPENED = datetime(2026, 11, 18, 4, 2, tzinfo=UTC)


def rule(signal: str = "telemetry.temperature", condition: Any = "above", **more: Any) -> AlertRule:
    return AlertRule(rule_id="r", signal=signal, condition=condition, threshold=30, **more)


def facts(**changes: Any) -> Facts:
    return Facts(
        **{
            "tenant_id": "hill", "episode_id": UUID(int=1), "step": "opened", "source": "rule",
            "severity": "critical", "state": "active",
            "message": "temperature in barn 3 above 30 °C for 10 minutes",
            "signal": "telemetry.temperature", "rule": rule(),
            "farm_id": "f", "farm": "North Farm", "barn_id": "b", "barn": "Barn 3",
            "device_id": "d-010", "edge_cluster_id": None, "batch_id": None,
            "timezone": "Asia/Bangkok", "opened_at": OPENED, "resolved_at": None,
            "first_value": 30.5, "worst_value": 31.4, "last_value": 31.0, "acknowledged_by": None,
            "note": None, "minutes_unanswered": 15, "ended_reason": None, **changes,
        }
    )  # fmt: skip


def test_message_says_what_where_since_when_value_limit_and_what_to_do() -> None:
    said = render(facts())
    assert said.subject == (
        "Critical: temperature in barn 3 above 30 °C for 10 minutes "
        "(Barn 3, North Farm, device d-010)"
    )
    assert said.text.splitlines() == [
        "Critical: temperature in barn 3 above 30 °C for 10 minutes",
        "",
        "Where:    Barn 3, North Farm, device d-010",
        "Since:    Wed 18 November 2026, 11:02 (Asia/Bangkok, UTC+07:00)",
        "Value:    31.4 °C",
        "Limit:    above 30 °C",
        "",
        "What to do: Go to the barn at once: check fans, inlets, power and the animals' water.",
    ]
    assert said.content["opened_at"] == "2026-11-18T04:02:00Z"


def test_subject_names_a_place_once() -> None:
    what = "temperature of d-010 in 30 on North Farm above 30 °C"
    said = render(facts(message=what, barn="30"))
    assert said.subject == f"Critical: {what} (30)"


def test_resolved_message_says_until_when_and_asks_for_nothing() -> None:
    said = render(facts(step="resolved", state="resolved", resolved_at=OPENED, last_value=28.0))
    assert said.subject.startswith("Resolved: temperature")
    assert "Until:    Wed 18 November 2026, 11:02" in said.text
    assert "Value:    28 °C" in said.text
    assert "What to do" not in said.text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ended_reason": "rule", "rule": None}, "No longer watched, its rule was removed: temp"),
        (
            {"ended_reason": "rule", "rule": rule(enabled=False)},
            "No longer watched, its rule was switched off: temp",
        ),
        ({"ended_reason": "rule"}, "No longer watched, its rule was changed or applies no more: "),
        ({"ended_reason": "person"}, "Ended by hand: temp"),
        ({"state": "withdrawn"}, "Withdrawn, later data show that it never was: temp"),
    ],
)
def test_what_the_values_did_not_end_is_not_called_resolved(
    changes: dict[str, Any], expected: str
) -> None:
    said = render(facts(**{"step": "resolved", "state": "resolved", **changes}))
    assert said.subject.startswith(expected)
    assert said.text.startswith(expected)


def test_every_way_to_end_has_words() -> None:
    for reason in get_args(EndReason):
        said = render(facts(step="resolved", state="resolved", ended_reason=reason))
        assert not said.subject.startswith("Resolved")


def test_value_against_a_standard_is_the_last_one() -> None:
    said = render(facts(step="escalated", rule=rule(baseline="standard")))
    assert "Value:    31 °C" in said.text


def test_escalated_and_acknowledged_messages_say_so() -> None:
    assert render(facts(step="escalated")).subject.startswith(
        "Critical, nobody has acknowledged for 15 minutes: "
    )
    said = render(facts(step="escalated", minutes_unanswered=1))
    assert said.subject.startswith("Critical, nobody has acknowledged for 1 minute: ")
    said = render(facts(step="acknowledged", acknowledged_by="Ann (ann)", note="on my way"))
    assert said.subject.startswith("Acknowledged by Ann (ann): ")
    assert "Note:     on my way" in said.text


def test_ids_stand_in_for_names_that_are_not_registered() -> None:
    said = render(facts(farm=None, barn=None, device_id=None))
    assert "Where:    barn b, farm f" in said.text


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"signal": "edge.heard"}, "power and internet on the farm"),
        ({"signal": "feed.days_left"}, "Order feed"),
        (
            {"signal": "telemetry.humidity", "rule": rule("telemetry.humidity", "absent")},
            "Check the device",
        ),
        ({"signal": None, "source": "edge"}, "farmiq alert ls"),
        ({"signal": None, "source": "cloud"}, "Whoever runs FarmIQ"),
    ],
)
def test_advice_follows_from_the_signal(changes: dict[str, Any], advice: str) -> None:
    assert advice in render(facts(**changes)).text


def test_subject_is_one_short_line_whatever_a_device_sent() -> None:
    said = render(facts(message="hot\r\nBcc: eve@example.com\x00" + "x" * 5000))
    assert len(said.subject) <= MAX_SUBJECT
    assert said.subject.isprintable()
    assert all(line.isprintable() for line in said.text.splitlines())


def test_episode_of_no_farm_has_a_message_too() -> None:
    nothing = dict.fromkeys(
        ("farm_id", "farm", "barn_id", "barn", "device_id", "signal", "rule", "first_value",
         "worst_value", "last_value")
    )  # fmt: skip
    said = render(facts(**nothing, edge_cluster_id="edge-01", source="edge", timezone="UTC"))
    assert "Where:    edge edge-01" in said.text
    assert "Value:" not in said.text


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        (rule(condition="below"), "below 30 °C"),
        (rule(condition="rises", window_s=600), "rises by more than 30 °C within 10 minutes"),
        (rule(condition="below", baseline="standard"), "more than 30 % below the breed standard"),
        (
            rule(condition="differs", baseline="same_hour"),
            "more than 30 % off the same hour of other days",
        ),
    ],
)
def test_limit_is_said_as_the_rule_means_it(given: AlertRule, limit: str) -> None:
    assert f"Limit:    {limit}" in render(facts(rule=given)).text


def test_message_is_in_the_language_of_who_gets_it_and_its_content_is_not() -> None:
    given = facts(
        message="temperature in Barn 3 of North Farm above 30.5 °C for 10 minutes",
        rule=rule(condition="below", baseline="standard"), step="escalated",
    )  # fmt: skip
    told = render(given, "de")
    assert told.subject.startswith("Kritisch, seit 15 Minuten hat niemand bestätigt: ")
    # What of it is English is a name, or the place of a clock.
    assert told.text.splitlines()[2:] == [
        "Wo:       Barn 3, North Farm, Gerät d-010",
        "Seit:     Mi. 18. November 2026, 11:02 (Asia/Bangkok, UTC+07:00)",
        "Wert:     31 °C",
        "Grenze:   mehr als 30 % unter dem Rassestandard",
        "",
        "Was zu tun ist: Gehen Sie in den Stall: Prüfen Sie Heizung, Türen und die Tiere.",
    ]
    assert told.content == {**render(given).content, "language": "de"}
    assert with_link(told.text, "https://f/x", "de").endswith(":\nhttps://f/x\n")
    assert "Testnachricht" in trial("mail", by="ann", language="de").subject
