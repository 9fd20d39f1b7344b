"""The topic map: what is built can be parsed, and nothing else can."""

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.messages import topics
from farmiq.messages.check import InvalidError
from farmiq.messages.topics import (
    CameraTopic,
    CommandTopic,
    EventTopic,
    Place,
    ReceiptTopic,
    SessionTopic,
    StatusTopic,
    TelemetryTopic,
    Topic,
)
from tests.unit.messages.examples import PLACE, TOPIC

ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,60}", fullmatch=True)
LEVELS = ("tenantId", "farmId", "barnId", "deviceId", "metricType")


@given(place=st.builds(Place, ids, ids, ids, ids), metric_type=ids)
def test_topic_that_was_built_is_parsed_back(place: Place, metric_type: str) -> None:
    topic = topics.telemetry(place, metric_type)

    assert topics.parse(topic) == TelemetryTopic(place, metric_type)
    assert topics.parse(topics.event(place, metric_type)) == EventTopic(place, metric_type)
    assert topics.parse(topics.command(place, metric_type)) == CommandTopic(place, metric_type)
    assert topics.parse(topics.status(place)) == StatusTopic(place)
    assert topics.parse(topics.receipts(place)) == ReceiptTopic(place)


@pytest.mark.req("WV-07")
@given(station=st.tuples(ids, ids, ids, ids), session_id=st.uuids(), event_type=ids)
def test_session_topic_is_parsed_back_segment_for_segment(
    station: tuple[str, str, str, str], session_id: UUID, event_type: str
) -> None:
    topic = topics.session(SessionTopic(*station, session_id, event_type))

    assert topic == f"iot/weighvision/{'/'.join(station)}/session/{session_id}/{event_type}"
    assert topics.parse(topic) == SessionTopic(*station, session_id, event_type)


@given(mac=st.from_regex(r"([0-9A-F]{2}:){5}[0-9A-F]{2}|[0-9a-f]{12}", fullmatch=True))
def test_cameras_topics_are_parsed_back(mac: str) -> None:
    for channel in topics.CAMERA_CHANNELS:
        assert topics.parse(topics.camera(mac, channel)) == CameraTopic(mac, channel)


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "x",
        "018f1a84bb0e7d3fb2e49e8b5f8e0300",
        "{018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0300}",
        "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e030g",
        "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0300\n",
    ],
)
def test_session_is_named_by_a_uuid(odd: str) -> None:
    with pytest.raises(InvalidError) as refused:
        topics.parse(f"iot/weighvision/t/f/b/s/session/{odd}/weighvision.weight.recorded")
    assert refused.value.reasons == [f"topic level sessionId is not a UUID: {odd!r}"]


def test_camera_has_four_topics() -> None:
    with pytest.raises(InvalidError, match="channel is none of status, data, ack, cmd: 'more'"):
        topics.parse("device/aa:bb:cc:dd:ee:ff/more")


def test_every_kind_of_topic_can_be_matched() -> None:
    found = []
    for shape in topics.SHAPES.values():
        topic = re.sub(r"{sessionId}", str(UUID(int=7)), shape)
        match topics.parse(re.sub(r"{[a-zA-Z]+}", "status", topic)):
            case TelemetryTopic(place) | EventTopic(place) | CommandTopic(place):
                found.append(place.device_id)
            case StatusTopic(place) | ReceiptTopic(place):
                found.append(place.tenant_id)
            case SessionTopic(session_id=session_id):
                found.append(str(session_id.int))
            case CameraTopic(mac, "status"):
                found.append(mac)
            case _:
                found.append("other")
    assert found == [*["status"] * 3, "7", *["status"] * 3]


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize(
    "odd",
    ["", " ", "-x", ".x", "+", "#", "a b", "a\n", "\n", "a\x00", "ä", "\ud800", "x" * 129, "$SYS"],
)
def test_every_odd_level_is_refused_by_name(name: str, odd: str) -> None:
    levels = TOPIC.split("/")
    levels[2 + LEVELS.index(name)] = odd

    with pytest.raises(InvalidError) as refused:
        topics.parse("/".join(levels))
    assert refused.value.reasons == [f"topic level {name} is not an id: {odd!r}"]


def test_all_odd_levels_are_listed_at_once() -> None:
    with pytest.raises(InvalidError) as refused:
        topics.parse("iot/telemetry/ /ok/+/ok/#")
    assert len(refused.value.reasons) == 3


def test_level_of_128_characters_is_still_an_id() -> None:
    longest = "x" * 128

    topic = f"iot/telemetry/t/f/b/{longest}/m"

    assert topics.parse(topic) == TelemetryTopic(Place("t", "f", "b", longest), "m")


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "/",
        "iot",
        "iot/telemetry",
        "iot/telemetry/t/f/b/d",
        f"{TOPIC}/more",
        f"/{TOPIC}",
        f"{TOPIC}/",
        TOPIC.upper(),
        TOPIC.replace("iot/", "iot//", 1),
        TOPIC.replace("telemetry", "weather"),
        "iot/ack/t-001/f-001/b-001/d-010/more",
        "iot/status/t/f/b",
        "iot/command/t/f/b/d",
        "iot/weighvision/t/f/b/s/session/018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0300",
        "iot/weighvision/t/f/b/s/meeting/018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0300/x",
        "device",
        "device/aa:bb",
        "device/aa:bb/status/x",
    ],
)
def test_topic_outside_the_map_is_refused(topic: str) -> None:
    with pytest.raises(InvalidError, match="not in the topic map"):
        topics.parse(topic)


def test_trailing_newline_is_refused() -> None:
    with pytest.raises(InvalidError, match="metricType is not an id"):
        topics.parse(f"{TOPIC}\n")


def test_length_is_counted_in_bytes() -> None:
    fits = "ä" * (topics.MAX_TOPIC_BYTES // 2)

    with pytest.raises(InvalidError, match="not in the topic map"):
        topics.parse(fits)
    with pytest.raises(InvalidError, match="longer than 512 bytes"):
        topics.parse(f"{fits}x")


@given(st.text(max_size=600))
def test_any_text_is_parsed_or_refused(topic: str) -> None:
    parsed, reasons = outcome(topic)

    assert reasons if parsed is None else topic.startswith(("iot/", "device/"))


def outcome(topic: str) -> tuple[Topic | None, list[str]]:
    """(what it says, []) or (None, why it was refused)."""
    try:
        return topics.parse(topic), []
    except InvalidError as refused:
        return None, refused.reasons


def test_gateway_does_not_listen_to_its_own_receipts() -> None:
    down = topics.receipts(PLACE).split("/")[1]

    assert down not in {topic.split("/")[1] for topic in topics.UP}
