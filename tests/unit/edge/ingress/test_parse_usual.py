"""The quick way says what the long way would, or nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge import arrival
from farmiq.edge.arrival import Arrival
from farmiq.messages.check import InvalidError
from tests.support import bad_input
from tests.unit.messages import examples
from tests.unit.messages.examples import AT, TOPIC

METRIC = TOPIC.rpartition("/")[2]


def quickly(topic: str, raw: bytes) -> Arrival | None:
    return arrival.parse_usual(topic, raw, now=AT)


def held_together(topic: str, raw: bytes) -> bool:
    """Whether the quick way took it; then it said the same."""
    found = quickly(topic, raw)
    if found is not None:
        assert found == arrival.parse(topic, raw, now=AT)
    return found is not None


def message(**changes: Any) -> bytes:
    payload = {"metric_type": METRIC, "metric_value": 21.5, "unit": "C"}
    return examples.envelope(**{"payload": payload, **changes})


def test_usual_reading_is_parsed_by_parse_usual() -> None:
    assert held_together(TOPIC, message())
    assert held_together(TOPIC, message(seq=7, boot_id="b", content_hash="c"))
    assert held_together(TOPIC, message(payload={"value": 7, "unit": "C"}))
    assert held_together(TOPIC, message(payload={"value": 0, "unit": "C"}))
    assert held_together(TOPIC, message(ts="1970-01-01T00:00:00Z"))


def test_parse_usual_of_bad_input_is_none_or_the_same_as_parse() -> None:
    for sent in bad_input.messages(seed=11, count=4_000):
        took = held_together(sent.topic, sent.raw)
        assert not took or sent.good, sent


def test_most_messages_of_healthy_devices_are_parsed_by_parse_usual() -> None:
    from random import Random  # noqa: PLC0415

    rng = Random(5)
    sent = [bad_input.healthy(rng) for _ in range(200)]
    readings = [one for one in sent if one.topic.startswith("iot/telemetry/")]
    assert sum(held_together(one.topic, one.raw) for one in readings) >= len(readings) * 0.5


@given(
    st.floats() | st.integers() | st.sampled_from([0, -0.0, 1e-31, 5e-324, 1e308, True, None, "7"]),
    st.text(max_size=70),
    st.datetimes(timezones=st.sampled_from([UTC, None])),
    st.dictionaries(
        st.sampled_from(["seq", "boot_id", "more", "content_hash"]), st.integers() | st.text()
    ),
)
def test_whatever_a_reading_holds_both_ways_agree(
    value: Any, unit: str, at: datetime, more: dict[str, Any]
) -> None:
    body = msgspec.json.decode(message())
    body |= {"ts": at.isoformat(), "payload": {"value": value, "unit": unit}, **more}
    held_together(TOPIC, msgspec.json.encode(body))


@pytest.mark.parametrize(
    "raw",
    [
        message().replace(b'"unit"', b'"unit":"C","unit"'),  # said twice
        message().replace(b'"unit":', b'"unit":"C","unit" :'),  # said twice, once with a space
        message().replace(b"21.5", b"1e-400"),
        message().replace(b"21.5", b"0." + b"0" * 400 + b"1"),
        message(trace_id="a\x00b"),
        message(schema_version="1.1"),
        message(more=1),
        message(ts=(AT + timedelta(days=1)).isoformat().replace("+00:00", "+02:00")),
    ],
)
def test_parse_usual_of_an_unusual_message_is_none(raw: bytes) -> None:
    assert quickly(TOPIC, raw) is None


def test_accept_returns_the_arrival_of_either_parser() -> None:
    assert arrival.accept(TOPIC, message(), now=AT) == quickly(TOPIC, message())
    with pytest.raises(InvalidError, match="more than once"):
        arrival.accept(TOPIC, message().replace(b'"unit"', b'"unit":"C","unit"'), now=AT)
