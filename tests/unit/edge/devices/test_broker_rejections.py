"""What the broker's log tells of refusals, whatever a sender calls itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.devices import broker
from farmiq.edge.devices.broker import MAX_SENDERS
from farmiq.plumbing.broker import log as broker_log
from farmiq.plumbing.broker.log import FORM, LOGIN, PERMISSION, Refusal

HEAD = "[27362] 2026/11/15 12:51:03.252939 [ERR] "
PUBLISH = HEAD + (
    '10.0.0.7:48631 - mid:40 - "scale-7" - Publish Violation - Subject "iot.status.t.f.b.d2"'
)
SUBSCRIBE = HEAD + (
    '10.0.0.7:48631 - mid:51 - "scale-7" - Subscription Violation - Subject ">", SID >'
)
LOGGED_OUT = HEAD + '10.0.0.9:48736 - mid:186 - "x" - authentication error - User "t/d"'
AGAIN = HEAD + '10.0.0.9:48736 - mid:186 - "x" - unable to connect: authentication error'


def test_a_refused_publish_and_subscription_name_the_sender() -> None:
    publish, subscribe = broker_log.read(PUBLISH), broker_log.read(SUBSCRIBE)
    assert publish is not None
    assert subscribe is not None
    assert (publish.kind, publish.sender) == (PERMISSION, "10.0.0.7")
    assert "tried to publish" in publish.words
    assert "iot.status.t.f.b.d2" in publish.words
    assert "tried to subscribe" in subscribe.words


def test_a_refused_login_is_told_once() -> None:
    found = broker_log.read(LOGGED_OUT)
    assert found is not None
    assert (found.kind, found.sender) == (LOGIN, "10.0.0.9")
    assert broker_log.read(AGAIN) is None


@pytest.mark.parametrize(
    "words",
    [
        "maximum payload exceeded: 2000031 vs 524288",
        "character not supported for MQTT topics",
        'invalid character in client ID "big one"',
    ],
)
def test_what_is_too_large_or_no_topic_is_told(words: str) -> None:
    found = broker_log.read(HEAD + f'10.0.0.7:58754 - mid:25 - "scale-7" - {words}')
    assert found is not None
    assert (found.kind, found.sender) == (FORM, "10.0.0.7")
    assert words in found.words
    ((alert, count),) = broker.rejection_alerts([found]).items()
    assert (alert.severity, count) == ("warning", 1)


def test_other_lines_tell_nothing() -> None:
    for line in ("", "[1] [INF] Server is ready", PUBLISH.replace("[ERR]", "[INF]")):
        assert broker_log.read(line) is None


def test_refusals_of_one_sender_are_one_alert_with_a_count() -> None:
    found = [broker_log.read(line) for line in (PUBLISH, PUBLISH, SUBSCRIBE, LOGGED_OUT)]
    counts = broker.rejection_alerts(each for each in found if each)
    assert sorted((one.kind, one.subject, count) for one, count in counts.items()) == [
        (LOGIN, "10.0.0.9", 1),
        (PERMISSION, "10.0.0.7", 3),
    ]
    assert {one.severity for one in counts} == {"security"}


def test_a_crowd_of_senders_shares_an_alert() -> None:
    crowd = [Refusal(PERMISSION, f"10.0.{n // 250}.{n % 250}", "x") for n in range(1000)]
    counts = broker.rejection_alerts(crowd)
    assert len(counts) == MAX_SENDERS + 1
    assert sum(counts.values()) == 1000


@pytest.mark.parametrize(
    ("client_id", "own_ids", "severity"),
    [
        ("t/d/agent-1", True, "info"),
        ("t/d/agent-1", False, "security"),
        ("edge-ingress-gateway", True, "security"),
    ],
)
def test_who_takes_its_own_place_is_no_matter_of_security(
    client_id: str, *, own_ids: bool, severity: str
) -> None:
    found = broker_log.read(
        HEAD.replace("ERR", "WRN") + f'10.0.0.7:48631 - mid:9 - "{client_id}" - Replacing old '
        f'client "{client_id}" since both have the same client ID "{client_id}"'
    )
    assert found is not None
    (alert,) = broker.rejection_alerts([found], own_ids=own_ids)
    assert alert.severity == severity


@given(st.text(max_size=400))
def test_no_name_breaks_the_reading_nor_the_alert(name: str) -> None:
    line = HEAD + f'10.0.0.7:4 - mid:40 - "{name}" - Publish Violation - Subject "{name}"'
    for each in line.splitlines():
        found = broker_log.read(each)
        if found is not None:
            assert found.words.isprintable()
            assert len(found.words) <= broker_log.MAX_WORDS
