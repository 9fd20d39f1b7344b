"""The bus envelope: nothing is lost on the way, and a repeat is told from another event."""

import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.messages import bus, catalogue, envelope, telemetry
from farmiq.messages.bus import BusEvent
from farmiq.messages.check import InvalidError
from tests.unit.messages import examples

REQUIRED = (
    "event_id", "event_type", "tenant_id", "farm_id", "barn_id", "occurred_at", "trace_id",
    "payload",
)  # fmt: skip


def reasons(raw: bytes) -> list[str]:
    with pytest.raises(InvalidError) as refused:
        bus.read(raw)
    return refused.value.reasons


def test_event_comes_back_as_it_was_sent() -> None:
    raw = examples.event(session_id=None)

    assert json.loads(bus.write(bus.read(raw))) == json.loads(raw)


@pytest.mark.parametrize("name", ["device_id", "session_id"])
def test_absent_stays_absent_and_null_stays_null(name: str) -> None:
    absent = json.loads(bus.write(bus.read(examples.event(**{name: examples.ABSENT}))))
    null = json.loads(bus.write(bus.read(examples.event(**{name: None}))))

    assert name not in absent
    assert null[name] is None


@pytest.mark.parametrize("name", REQUIRED)
def test_each_required_field_is_named_when_it_is_missing(name: str) -> None:
    assert reasons(examples.event(**{name: examples.ABSENT})) == [
        f"missing required field `{name}` - at `$`"
    ]


@pytest.mark.parametrize("name", ["farm_id", "barn_id"])
def test_reading_without_a_place_is_rejected(name: str) -> None:
    assert reasons(examples.event(**{name: None})) == [f"`{name}` must not be null"]


def test_problems_of_place_and_payload_are_listed_together() -> None:
    raw = examples.event(farm_id=None, barn_id=None, payload={"unit": "C"})

    assert reasons(raw) == [
        "`farm_id` must not be null",
        "`barn_id` must not be null",
        "missing required field `metric_type` - at `$.payload`",
        "missing required field `metric_value` - at `$.payload`",
    ]


def test_missing_field_hides_nothing_that_only_the_bus_asks() -> None:
    raw = examples.event(
        trace_id=examples.ABSENT, farm_id=None, occurred_at="0001-01-01T00:00:00+14:00"
    )

    assert reasons(raw) == [
        "not a moment between 0001-01-03 and 9999-12-29 in UTC - at `$.occurred_at`",
        "missing required field `trace_id` - at `$`",
        "`farm_id` must not be null",
    ]
    assert reasons(examples.event(trace_id=examples.ABSENT, event_type="telemetry.guessed")) == [
        "missing required field `trace_id` - at `$`",
        "event_type 'telemetry.guessed' is not registered",
    ]


def test_unstorable_value_hides_no_other_problem() -> None:
    raw = examples.event(barn_id=None, trace_id="a\0b", payload={"unit": 7})

    assert [reason.split(" - at ")[0] for reason in reasons(raw)] == [
        "contains a NUL character",
        "`barn_id` must not be null",
        "missing required field `metric_type`",
        "missing required field `metric_value`",
        "Expected `str`, got `int`",
    ]


def test_unknown_type_is_refused() -> None:
    assert reasons(examples.event(event_type="telemetry.guessed")) == [
        "event_type 'telemetry.guessed' is not registered"
    ]


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_moment_that_utc_cannot_name_is_refused(at: str) -> None:
    assert reasons(examples.event(occurred_at=at)) == [
        "not a moment between 0001-01-03 and 9999-12-29 in UTC - at `$.occurred_at`"
    ]


@pytest.mark.parametrize("odd", [b"1e400", b"1" * 5000])
def test_number_out_of_range_is_named_where_nobody_reads_it_too(odd: bytes) -> None:
    payload = b'{"metric_type":"m","metric_value":1,"x":' + odd + b"}"

    assert reasons(examples.event_with_payload(payload)) == [
        "a number out of range - at `$.payload.x`",
        "missing required field `unit` - at `$.payload`",
    ]


@pytest.mark.parametrize("odd", [b'"\xff"', b'{"y":"\xff"}'])
def test_field_we_do_not_know_must_still_be_json(odd: bytes) -> None:
    payload = b'{"metric_type":"m","metric_value":1,"unit":"C","x":' + odd + b"}"

    (reason,) = reasons(examples.event_with_payload(payload))
    assert reason.startswith("not JSON")


def test_text_that_only_looks_like_a_nul_is_kept() -> None:
    raw = examples.event(trace_id=r"a\u0000b")

    assert bus.read(raw).trace_id == r"a\u0000b"


def test_exchange_is_named_after_the_first_segment() -> None:
    assert catalogue.BUS["telemetry.ingested"].exchange == "farmiq.telemetry.exchange"


def test_from_mqtt_to_the_bus_the_id_stays_and_the_place_is_the_topics() -> None:
    message = envelope.read(examples.envelope())
    reading = telemetry.read(message.payload, metric_type="temperature")

    event = bus.from_reading(message, examples.PLACE, reading)

    assert json.loads(bus.write(event)) == {**examples.event_fields(), "session_id": None}


def told(payload: str) -> Any:
    """What the bus is told of a reading that was sent like this."""
    raw = examples.envelope(payload="here").replace(b'"here"', payload.encode())
    message = envelope.read(raw)
    reading = telemetry.read(message.payload, metric_type="temperature")
    return bus.from_reading(message, examples.PLACE, reading)


LONG = {"metric_type": "temperature", "metric_value": 21.5, "unit": "C"}


@pytest.mark.parametrize(
    ("sent", "more"),
    [
        ('{"value": 21.5, "unit": "C"}', {}),
        ('{"unit": "C", "metric_value": 21.5, "metric_type": "temperature"}', {}),
        ('{"value": 21.5, "unit": "C", "quality": "good"}', {"quality": "good"}),
        ('{"unit": "C", "probe" : 7, "metric_value": 21.5}', {"probe": 7}),
        ('{"value": 3, "metric_value": 21.5, "unit": "C"}', {"value": 3}),
        ('{"value": 21.5, "unit": "C", "a": {"value": [1, null]}}', {"a": {"value": [1, None]}}),
    ],
)
def test_every_key_of_a_reading_is_kept_beside_the_long_form(
    sent: str, more: dict[str, Any]
) -> None:
    event = told(sent)

    assert json.loads(bytes(event.payload)) == {**LONG, **more}
    assert bus.read(bus.write(event)).payload == event.payload


def test_key_we_do_not_know_keeps_its_digits() -> None:
    event = told('{"value":21.5,"unit":"C","exact":0.12345678901234567890123456789}')

    assert b'"exact":0.12345678901234567890123456789' in bytes(event.payload)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


@given(
    more=st.dictionaries(
        texts.filter(lambda key: key not in {*LONG, "value"}),
        st.recursive(st.none() | st.integers(-9, 9) | texts, st.lists, max_leaves=4),
        max_size=4,
    ),
    short=st.booleans(),
)
def test_whatever_else_a_reading_says_is_kept_and_its_order_is_no_other_event(
    more: dict[str, Any], *, short: bool
) -> None:
    sent = {**({"value": 21.5, "unit": "C"} if short else LONG), **more}
    one, other = told(json.dumps(sent)), told(json.dumps(dict(reversed(sent.items()))))

    assert json.loads(bytes(one.payload)) == {**LONG, **more}
    assert bus.content_hash(one) == bus.content_hash(other)


# --- the content hash


@given(at=st.datetimes(timezones=st.timezones()))
def test_moment_is_hashed_as_isoformat_writes_it_in_utc(at: datetime) -> None:
    try:
        written = at.astimezone(UTC).isoformat()
    except OverflowError:  # refused at every door
        return
    event = msgspec.structs.replace(bus.read(examples.event()), occurred_at=at)
    payload = json.dumps(examples.event_fields()["payload"], separators=(",", ":"))
    parts = (event.event_type, written, payload)
    expected = hashlib.sha256("\x1f".join(parts).encode()).digest()

    assert bus.content_hash(event) == expected


def hashed(**changes: Any) -> bytes:
    return bus.content_hash(bus.read(examples.event(**changes)))


def test_content_hash_ignores_the_order_of_keys() -> None:
    payload = examples.event_fields()["payload"]

    assert hashed(payload=dict(reversed(payload.items()))) == hashed()


def test_content_hash_ignores_the_spelling_of_a_moment() -> None:
    same = ["2025-01-02T17:00:00+07:00", "2025-01-02T10:00:00.000000Z", "2025-01-02T09:30:00-00:30"]

    assert {hashed(occurred_at=at) for at in same} == {hashed()}


def test_content_hash_ignores_the_trace() -> None:
    assert hashed(trace_id="trace-999") == hashed()


@pytest.mark.parametrize(
    "changes",
    [
        {"occurred_at": "2025-01-02T10:00:00.000001Z"},
        {"payload": {"metric_type": "temperature", "metric_value": 21.6, "unit": "C"}},
        {"payload": {"metric_type": "temperature", "metric_value": 21.5, "unit": "F"}},
        {"payload": {"metric_type": "humidity", "metric_value": 21.5, "unit": "C"}},
        {"payload": {"metric_type": "temperature", "metric_value": 21.5, "unit": "C", "x": None}},
    ],
)
def test_content_hash_changes_with_any_content(changes: dict[str, Any]) -> None:
    assert hashed(**changes) != hashed()


values = st.dictionaries(
    st.text(max_size=5),
    st.integers(-(2**53), 2**53) | st.booleans() | st.none() | st.text(max_size=5),
    max_size=4,
)


@given(first=values, second=values, minutes=st.integers(-1439, 1439))
def test_hashes_are_equal_exactly_when_contents_are(
    first: dict[str, Any], second: dict[str, Any], minutes: int
) -> None:
    def event(payload: dict[str, Any], zone: timezone) -> BusEvent:
        return msgspec.structs.replace(
            bus.read(examples.event()),
            occurred_at=examples.AT.astimezone(zone),
            payload=msgspec.Raw(json.dumps(payload).encode()),
        )

    one = bus.content_hash(event(first, UTC))
    other = bus.content_hash(event(second, timezone(timedelta(minutes=minutes))))

    assert (one == other) == (
        json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    )
