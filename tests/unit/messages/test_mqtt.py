"""A message on MQTT: topic, envelope and payload agree, or everything that is wrong is listed."""

import json
from typing import Any

import pytest

from farmiq.messages import catalogue, mqtt
from farmiq.messages.check import InvalidError
from farmiq.messages.telemetry import Reading
from farmiq.messages.topics import EventTopic, SessionTopic
from tests.unit.messages import examples, samples


def reasons(topic: str, raw: bytes) -> list[str]:
    with pytest.raises(InvalidError) as refused:
        mqtt.read(topic, raw)
    return refused.value.reasons


def message(event_type: str, /, **changes: Any) -> tuple[str, bytes]:
    sample = samples.from_device(event_type)
    changed = {**sample.envelope, **changes}
    return sample.topic, json.dumps(
        {k: v for k, v in changed.items() if v is not examples.ABSENT}
    ).encode()


def test_reading_comes_in_the_long_form_whichever_was_sent() -> None:
    topic, raw = message("telemetry.reading", payload={"value": 21.5, "unit": "C"})

    assert mqtt.read(topic, raw).payload == Reading(
        metric_type="temperature", metric_value=21.5, unit="C"
    )


def test_problems_of_topic_envelope_and_payload_are_listed_together() -> None:
    topic, raw = message(
        "telemetry.reading",
        event_id="x",
        tenant_id="t-002",
        schema_version="2.0",
        trace_id=examples.ABSENT,
        payload={"metric_type": "humidity", "metric_value": "1"},
    )

    assert [reason.split(" - at ")[0] for reason in reasons(topic, raw)] == [
        "Invalid UUID",
        "missing required field `trace_id`",
        "schema_version '2.0' is not understood, expected 1 or 1.<digits>",
        "topic says tenant_id 't-001', envelope 't-002'",
        "missing required field `unit`",
        "Expected `float`, got `str`",
        "topic says metric 'temperature', payload 'humidity'",
    ]


def test_unstorable_value_hides_no_other_problem() -> None:
    topic, raw = message("telemetry.reading", tenant_id="t-002", payload={}, boot_id="a\0b")
    raw = raw.replace(b'"seq": 7', b'"seq": 7, "seq": 1e400')

    assert reasons(topic, raw) == [
        "the key 'seq' stands there more than once - at `$`",
        "a number out of range - at `$.seq`",
        "contains a NUL character - at `$.boot_id`",
        "topic says tenant_id 't-001', envelope 't-002'",
        "missing required field `unit` - at `$.payload`",
        "missing required field `metric_value` (or `value`) - at `$.payload`",
    ]


def test_type_nobody_knows_does_not_hide_a_foreign_sender() -> None:
    sent = samples.from_device("feed.dispensed")
    topic = sent.topic.replace("feed.dispensed", "feed.eaten")
    changed = {"tenant_id": "t-002", "device_id": "d-9", "event_type": "feed.eaten"}

    assert reasons(topic, json.dumps({**sent.envelope, **changed}).encode())[1:] == [
        "topic says tenant_id 't-001', envelope 't-002'",
        "topic says device_id 'd-010', envelope 'd-9'",
    ]


def test_missing_field_hides_neither_version_nor_moment() -> None:
    topic, raw = message(
        "device.status",
        trace_id=examples.ABSENT,
        schema_version="1.x; drop",
        ts="0001-01-01T00:00:00+14:00",
    )

    assert reasons(topic, raw) == [
        "missing required field `trace_id` - at `$`",
        "not a moment between 0001-01-03 and 9999-12-29 in UTC - at `$.ts`",
        "schema_version '1.x; drop' is not understood, expected 1 or 1.<digits>",
    ]


def test_where_the_topic_names_no_type_the_payload_is_looked_at_by_its_own() -> None:
    _, raw = message("feed.dispensed", payload={"quantity_kg": -1})

    found = reasons("iot/event/t-001/f-001/b-001/d-010/feed.eaten", raw)

    assert found[-1].endswith("- at `$.payload.quantity_kg`")


def test_bad_topic_does_not_hide_a_bad_body() -> None:
    found = reasons("iot/event/t-001/f-001/b 1/d-010/feed.dispensed", b"{}")

    assert found[0] == "topic level barnId is not an id: 'b 1'"
    assert len(found) == 9


@pytest.mark.parametrize("name", [n for n in catalogue.MQTT if n != "telemetry.reading"])
def test_topic_and_body_name_the_same_tenant_and_type(name: str) -> None:
    topic, raw = message(name, tenant_id="t-002", event_type="other")

    assert reasons(topic, raw) == [
        "topic says tenant_id 't-001', envelope 't-002'",
        f"topic says event_type {name!r}, envelope 'other'",
    ]


def test_station_may_carry_any_device_until_the_registry_says_which() -> None:
    topic, raw = message("weighvision.weight.recorded", device_id="weighvision-device-001")

    assert mqtt.read(topic, raw).envelope.device_id == "weighvision-device-001"


@pytest.mark.parametrize(
    ("carrier", "event_type"),
    [
        (EventTopic, "weighvision.weight.recorded"),
        (EventTopic, "telemetry.reading"),
        (EventTopic, "device.receipt"),
        (EventTopic, "feed.eaten"),
        (SessionTopic, "feed.dispensed"),
    ],
)
def test_type_on_a_topic_that_does_not_carry_it_is_refused(carrier: Any, event_type: str) -> None:
    topic = samples.topic_of(carrier, event_type)

    found = reasons(topic, json.dumps({"payload": {}}).encode())

    assert found[0].startswith("topic is not in the topic map: iot/")
    assert found[0].endswith(f"does not carry {event_type!r}")


def test_cameras_topic_carries_no_envelope() -> None:
    found = reasons("device/aa:bb:cc:dd:ee:ff/data", examples.envelope())

    assert found == ["a camera's topic carries its firmware's own format, no envelope"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ((b'"seq": 7', b'"seq": 7, "seq": 7'), "the key 'seq' stands there more than once"),
        ((b'"unit"', b'"unit": "K", "unit"'), "the key 'unit' stands there more than once"),
        ((b'"seq": 7', b'"x": 1e-400'), "a number that cannot be kept exactly - at `$.x`"),
        ((b'"seq": 7', b'"x": 1E+400'), "out of range"),
        ((b'"seq": 7', b'"x": 0.' + b"0" * 400 + b"1"), "cannot be kept exactly - at `$.x`"),
        ((b'"seq": 7', b'"x": 0.' + b"1" * 16_384), "cannot be kept exactly - at `$.x`"),
        ((b'"seq": 7', b'"x": "\\u0000"'), "contains a NUL character - at `$.x`"),
        (
            (b'"seq": 7', b'"x": "\\ud800"'),
            "a lone surrogate, which is half a character - at `$.x`",
        ),
        ((b'"seq": 7', b'"x": ' + b"[" * 33 + b"]" * 33), "nested deeper than 32 levels"),
        ((b'"seq": 7', b'"seq": 9007199254740992'), "at `$.seq`"),
    ],
)
def test_message_that_cannot_be_stored_exactly_is_rejected(
    damage: tuple[bytes, bytes], said: str
) -> None:
    topic, raw = message("telemetry.reading")

    found = reasons(topic, raw.replace(*damage))

    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    "harmless",
    [
        rb'"x": "a\": 1, \"a\": 2"',
        b'"x" : 1, "y"\n:\t2',
        b'"x": 1e-300, "y": 1.5e300, "z": -0.0, "n": 0e999',
        b'"x": 0.12345678901234567890123456789',
        b'"x": ' + b"9" * 300,
        b'"x": [{"a": 1}, {"a": 1}], "y": {"a": {"a": 1}}',
        b'"x": ' + b"[" * 31 + b"]" * 31,
    ],
)
def test_message_that_only_looks_odd_is_read(harmless: bytes) -> None:
    topic, raw = message("telemetry.reading")

    assert mqtt.read(topic, raw.replace(b'"seq": 7', harmless)).payload.unit == "C"
