"""The door: a message is one of ours, or every reason why not is listed."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.arrival import Arrival, accept
from farmiq.edge.ingress.receipts import sender_and_id
from farmiq.messages import bus, catalogue, topics
from farmiq.messages.catalogue import Direction
from farmiq.messages.check import InvalidError
from farmiq.messages.topics import Place
from tests.unit.messages import examples, samples
from tests.unit.messages.examples import AT, PLACE, TOPIC


def reasons(topic: str, raw: bytes) -> list[str]:
    with pytest.raises(InvalidError) as refused:
        accept(topic, raw, now=AT)
    return refused.value.reasons


def test_a_reading_becomes_an_event_of_the_topics_place() -> None:
    raw = examples.envelope()

    arrival = accept(TOPIC, raw, now=AT)

    assert (arrival.topic, arrival.raw, arrival.place) == (TOPIC, raw, PLACE)
    assert arrival.payload.metric_value == 21.5
    assert arrival.key == ("t-001", UUID(examples.EVENT_ID))
    assert (arrival.event.farm_id, arrival.event.barn_id) == ("f-001", "b-001")
    assert arrival.content_hash == bus.content_hash(arrival.event, sender=arrival.place.device_id)
    assert not arrival.clock_suspect


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tenant_id": "t-002"}, "topic says tenant_id 't-001', envelope 't-002'"),
        ({"device_id": "d-011"}, "topic says device_id 'd-010', envelope 'd-011'"),
        (
            {"event_type": "feed.dispensed"},
            "topic says event_type 'telemetry.reading', envelope 'feed.dispensed'",
        ),
    ],
)
def test_each_mismatch_of_topic_and_body_is_named(changes: dict[str, str], said: str) -> None:
    assert reasons(TOPIC, examples.envelope(**changes)) == [said]


def test_all_mismatches_are_named_at_once() -> None:
    raw = examples.envelope(tenant_id="a", device_id="b", event_type="c")

    assert len(reasons(TOPIC, raw)) == 3


def test_the_metric_of_the_topic_is_believed() -> None:
    assert reasons(TOPIC.replace("temperature", "humidity"), examples.envelope()) == [
        "topic says metric 'humidity', payload 'temperature'"
    ]


def test_a_topic_outside_the_map_is_refused() -> None:
    first, *mismatches = reasons("iot/event/t/f/b/d/x", examples.envelope())

    assert first.startswith("topic is not in the topic map")
    assert len(mismatches) == 3


def sent(event_type: str, **changes: Any) -> tuple[str, bytes]:
    sample = samples.from_device(event_type)
    return sample.topic, json.dumps({**sample.envelope, **changes}).encode()


UP = [kind.name for kind in catalogue.MQTT.values() if kind.direction is Direction.UP]


@pytest.mark.parametrize("event_type", UP)
def test_everything_that_devices_send_is_understood(event_type: str) -> None:
    topic, raw = sent(event_type)
    arrival = accept(topic, raw, now=AT)
    said = json.loads(raw)

    assert arrival.kind == event_type
    assert isinstance(arrival.payload, msgspec.Struct)
    assert arrival.place.device_id == said["device_id"]
    assert arrival.event.event_id == UUID(said["event_id"])
    assert json.loads(bytes(arrival.event.payload)) == said["payload"]


@pytest.mark.parametrize("event_type", [name for name in UP if name != "telemetry.reading"])
def test_what_is_malformed_is_refused_for_everything_that_is(event_type: str) -> None:
    found = reasons(*sent(event_type, trace_id="", payload=7))

    assert found == [
        "Expected `str` of length >= 1 - at `$.trace_id`",
        "expected an object, got a number - at `$.payload`",
    ]


@pytest.mark.parametrize("event_type", ["device.command", "device.receipt"])
def test_what_goes_down_is_not_taken_up(event_type: str) -> None:
    assert reasons(*sent(event_type)) == [
        f"{event_type} goes from the edge to devices, not the other way"
    ]


def test_size_is_bounded_and_the_largest_is_read() -> None:
    filler = topics.MAX_PAYLOAD_BYTES - len(examples.envelope(more=""))
    largest = examples.envelope(more="x" * filler)

    assert len(accept(TOPIC, largest, now=AT).raw) == topics.MAX_PAYLOAD_BYTES
    assert reasons(TOPIC, largest + b" ") == ["payload of 262145 bytes, at most 262144"]


@pytest.mark.parametrize(
    ("skew", "suspect"),
    [
        (timedelta(0), False),
        (timedelta(days=7), False),
        (-timedelta(hours=24), False),
        (timedelta(days=7, microseconds=1), True),
        (-timedelta(hours=24, microseconds=1), True),
    ],
)
def test_a_clock_that_is_far_off_is_flagged_and_kept(*, skew: timedelta, suspect: bool) -> None:
    arrival = accept(TOPIC, examples.envelope(), now=AT + skew)

    assert arrival.clock_suspect is arrival.event.clock_suspect is suspect
    assert arrival.event.occurred_at == AT


@pytest.mark.parametrize(
    "ts",
    [
        "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00",
        # In UTC there is such a moment, but not on the clock of every farm.
        "0001-01-01T02:00:00Z", "9999-12-31T22:00:00Z",
    ],
)  # fmt: skip
def test_time_that_utc_cannot_express_does_not_stop_ingress(ts: str) -> None:
    assert "UTC" in reasons(TOPIC, examples.envelope(ts=ts))[0]


@given(topic=st.sampled_from([TOPIC, "iot/x", ""]) | st.text(max_size=80), raw=st.binary())
def test_any_message_is_accepted_or_refused(topic: str, raw: bytes) -> None:
    try:
        found: Arrival | list[str] = accept(topic, raw, now=AT)
    except InvalidError as invalid:
        found = invalid.reasons
    assert found
    sender_and_id(topic, raw)


def test_who_sent_a_refused_message_is_known_if_it_says_at_least_its_id() -> None:
    raw = examples.envelope(schema_version="2.0", payload=examples.ABSENT)

    sender = sender_and_id(TOPIC, raw)

    assert sender is not None
    assert (sender[0], str(sender[1])) == (PLACE, examples.EVENT_ID)


@pytest.mark.parametrize("event_type", ["feed.dispensed", "device.status"])
def test_the_sender_of_an_event_is_its_topics_device(event_type: str) -> None:
    sender = sender_and_id(*sent(event_type, device_id="another"))

    assert sender is not None
    assert sender[0] == PLACE


@pytest.mark.parametrize(
    ("topic", "raw"),
    [
        ("iot/odd", examples.envelope()),
        sent("weighvision.weight.recorded"),
        sent("device.receipt"),
        (TOPIC, b""),
        (TOPIC, b"[]"),
        (TOPIC, b"\xff"),
        (TOPIC, b"[" * 10_000),
        (TOPIC, examples.envelope(event_id=examples.ABSENT)),
        (TOPIC, examples.envelope(event_id="7")),
    ],
)
def test_of_others_the_sender_is_not_known(topic: str, raw: bytes) -> None:
    assert sender_and_id(topic, raw) is None


@pytest.mark.parametrize(
    ("topic", "raw"),
    [
        ("iot/weighvision/t/f/b/station/session/no-uuid/x", b'{"event_id":"%s"}'),
        ("iot/telemetry/t/f/b/d/odd metric", b'{"event_id":"%s"}'),
        ("iot/event/t/f/b/d", b'{"event_id" : "%s", "payload": NaN}'),
        ("iot/status/t/f/b/d", b'{"event_id":"%s",'),
    ],
)
def test_whoever_can_be_told_of_a_refusal_is_told(topic: str, raw: bytes) -> None:
    event_id = uuid4()
    device = Place("t", "f", "b", "d")
    told = sender_and_id(topic, raw % str(event_id).encode(), lambda _: device)
    assert told == (device, event_id)


@pytest.mark.parametrize(
    ("topic", "raw"),
    [
        ("iot/telemetry/t/f", b'{"event_id":"00000000-0000-4000-8000-000000000000"}'),
        ("iot/command/t/f/b/d/x/y", b'{"event_id":"00000000-0000-4000-8000-000000000000"}'),
        ("iot/telemetry/t/f/b/#/x", b'{"event_id":"00000000-0000-4000-8000-000000000000"}'),
        (
            "iot/telemetry/t/f/b/d/m",
            b"""{"event_id":"00000000-0000-4000-8000-000000000000",
                 "event_id":"00000000-0000-4000-8000-000000000001",""",
        ),
    ],
)
def test_sender_and_id_of_an_unclear_message_is_none(topic: str, raw: bytes) -> None:
    assert sender_and_id(topic, raw) is None
