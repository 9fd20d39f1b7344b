"""The topic map: what is built can be parsed, and nothing else can."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.messages import topics
from farmiq.messages.check import Invalid
from farmiq.messages.topics import Place, TelemetryTopic
from tests.unit.messages.examples import PLACE, TOPIC

ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,60}", fullmatch=True)
LEVELS = ("tenantId", "farmId", "barnId", "deviceId", "metricType")


@given(place=st.builds(Place, ids, ids, ids, ids), metric_type=ids)
def test_what_is_built_is_parsed_back(place: Place, metric_type: str) -> None:
    topic = topics.telemetry(place, metric_type)

    assert topics.parse(topic) == TelemetryTopic(place, metric_type)


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize(
    "odd",
    ["", " ", "-x", ".x", "+", "#", "a b", "a\n", "\n", "a\x00", "ä", "\ud800", "x" * 129, "$SYS"],
)
def test_every_odd_level_is_refused_by_name(name: str, odd: str) -> None:
    levels = TOPIC.split("/")
    levels[2 + LEVELS.index(name)] = odd

    with pytest.raises(Invalid) as refused:
        topics.parse("/".join(levels))
    assert refused.value.reasons == [f"topic level {name} is not an id: {odd!r}"]


def test_all_odd_levels_are_listed_at_once() -> None:
    with pytest.raises(Invalid) as refused:
        topics.parse("iot/telemetry/ /ok/+/ok/#")
    assert len(refused.value.reasons) == 3


def test_a_level_of_128_characters_is_still_an_id() -> None:
    longest = "x" * 128

    assert topics.parse(f"iot/telemetry/t/f/b/{longest}/m").place.device_id == longest


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
        TOPIC.replace("telemetry", "event"),
        "iot/ack/t-001/f-001/b-001/d-010",
    ],
)
def test_a_topic_outside_the_map_is_refused(topic: str) -> None:
    with pytest.raises(Invalid, match="not in the topic map"):
        topics.parse(topic)


def test_a_trailing_newline_is_refused() -> None:
    with pytest.raises(Invalid, match="metricType is not an id"):
        topics.parse(f"{TOPIC}\n")


def test_length_is_counted_in_bytes() -> None:
    fits = "ä" * (topics.MAX_TOPIC_BYTES // 2)

    with pytest.raises(Invalid, match="not in the topic map"):
        topics.parse(fits)
    with pytest.raises(Invalid, match="longer than 512 bytes"):
        topics.parse(f"{fits}x")


@given(st.text(max_size=600))
def test_any_text_is_parsed_or_refused(topic: str) -> None:
    with contextlib.suppress(Invalid):
        topics.parse(topic)


def test_the_gateway_does_not_listen_to_its_own_receipts() -> None:
    down = topics.receipts(PLACE).split("/")[1]

    assert down not in {topic.split("/")[1] for topic in topics.UP}
