"""A reading: the long form, the short form, and what the topic has to say about both."""

import json
from typing import Any

import msgspec
import pytest

from farmiq.messages import telemetry
from farmiq.messages.check import InvalidError
from farmiq.messages.telemetry import Reading


def read(payload: Any, metric_type: str = "temperature") -> Reading:
    return telemetry.read(msgspec.Raw(json.dumps(payload).encode()), metric_type=metric_type)


def reasons(payload: Any, metric_type: str = "temperature") -> list[str]:
    with pytest.raises(InvalidError) as refused:
        read(payload, metric_type)
    return refused.value.reasons


READING = Reading(metric_type="temperature", metric_value=21.5, unit="C")


def test_reading_in_the_long_form_is_read() -> None:
    assert read({"metric_type": "temperature", "metric_value": 21.5, "unit": "C"}) == READING


def test_short_form_takes_its_metric_from_the_topic() -> None:
    assert read({"value": 21.5, "unit": "C"}) == READING


def test_with_both_values_the_long_forms_counts() -> None:
    assert read({"metric_value": 21.5, "value": 3, "unit": "C"}) == READING


def test_whole_number_is_a_value() -> None:
    assert read({"value": 21, "unit": ""}).metric_value == 21.0


def test_topic_and_the_payload_must_name_one_metric() -> None:
    assert reasons({"metric_type": "humidity", "metric_value": 1, "unit": "%"}) == [
        "topic says metric 'temperature', payload 'humidity'"
    ]


def test_reading_without_a_value_is_rejected() -> None:
    assert reasons({"unit": "C"}) == ["missing required field `metric_value` (or `value`) - at `$`"]


@pytest.mark.parametrize("value", ["21.5", None, True, [21.5], {}])
def test_only_a_number_is_a_value(value: Any) -> None:
    assert "Expected `float`" in reasons({"value": value, "unit": "C"})[0]


def test_unit_is_required_and_short() -> None:
    assert reasons({"value": 1}) == ["missing required field `unit` - at `$`"]
    assert "length <= 64" in reasons({"value": 1, "unit": "x" * 65})[0]


def test_bus_carries_the_long_form_only() -> None:
    kept = telemetry.read_ingested(msgspec.Raw(msgspec.json.encode(READING)))

    assert kept == READING
    with pytest.raises(InvalidError, match="missing required field `metric_type`"):
        telemetry.read_ingested(msgspec.Raw(b'{"value":21.5,"unit":"C"}'))
