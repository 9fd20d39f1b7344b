"""Of what kind a refusal is: from the reasons that ingress really gives."""

import json
from typing import Any

import pytest

from farmiq.edge.arrival import accept
from farmiq.edge.ingress import quarantine, rules
from farmiq.messages import topics
from farmiq.messages.check import InvalidError
from farmiq.messages.topics import Place
from tests.support import bad_input
from tests.unit.messages import examples
from tests.unit.messages.examples import AT, PLACE, TOPIC


def reasons(topic: str, raw: bytes) -> list[str]:
    with pytest.raises(InvalidError) as refused:
        accept(topic, raw, now=AT)
    return refused.value.reasons


@pytest.mark.parametrize(
    ("topic", "changes", "kind"),
    [
        (TOPIC, {"tenant_id": "t-002"}, "security"),
        (TOPIC, {"device_id": "d-999"}, "security"),
        (TOPIC, {"event_type": "feed.dispensed"}, "security"),
        (TOPIC, {"tenant_id": "t-002", "ts": "yesterday"}, "security"),
        (TOPIC, {"ts": "yesterday"}, "format"),
        (TOPIC, {"schema_version": "9"}, "format"),
        (TOPIC.replace("temperature", "humidity"), {}, "format"),
        (TOPIC, {"padding": "x" * topics.MAX_PAYLOAD_BYTES}, "size"),
        ("iot/telemetry/" + "x" * 600, {}, "size"),
        ("iot/telemetry/t", {}, "format"),
    ],
)
def test_kind_of_reasons_of_invalid_messages(
    topic: str, changes: dict[str, Any], kind: str
) -> None:
    assert rules.kind(reasons(topic, examples.envelope(**changes))) == kind


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("EVENT_ID_CONFLICT: this event_id came with another content", "conflict"),
        ("the database refused it: division by zero", "database"),
        ("barn.record.created is understood but not recorded at this edge yet", "not_recorded"),
        ("NOT_REGISTERED: device 'd-1' of tenant 't-1' is not known", "security"),
        ("topic level metricType is not an id: 'topic says tenant_id'", "format"),
    ],
)
def test_kind_of_reasons_after_parsing(reason: str, kind: str) -> None:
    assert rules.kind([reason]) == kind


@pytest.mark.parametrize(
    ("reason", "gist"),
    [
        ("topic says tenant_id 't-1', envelope 't-2'", "topic says tenant_id"),
        ("missing required field `event_id` - at `$`", "missing required field"),
        ("not JSON: JSON is malformed: invalid character (byte 5)", "not JSON"),
        ("payload of 300000 bytes, at most 262144", "payload of"),
        ("'odd'", "other"),
        (
            "barn.record.created is understood but not recorded at this edge yet",
            "barn.record.created is understood but not recorded at this edge yet",
        ),
    ],
)
def test_gist_ends_where_the_values_begin(reason: str, gist: str) -> None:
    assert rules.gist([reason]) == gist


def test_thousands_of_bad_messages_have_few_gists() -> None:
    found = set()
    for sent in bad_input.messages(seed=21, count=3_000):
        if not sent.good:
            found.add(rules.gist(reasons(sent.topic, sent.raw)))
    assert 5 < len(found) < 60, found


def test_place_is_read_from_the_topic() -> None:
    session = "iot/weighvision/t/f/b/s-1/session/018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0301/x.y"
    assert rules.place(TOPIC) == PLACE
    assert rules.place(session) == Place("t", "f", "b", "s-1")
    for topic in ("", "iot/odd", "device/aa:bb/data", "\x00"):
        assert rules.place(topic) == rules.NOBODY
    assert rules.subject(rules.NOBODY) == "unknown"


@pytest.mark.req("WV-08")
def test_alert_of_a_rejection_names_the_device() -> None:
    mismatch = quarantine.alert(TOPIC, ["topic says tenant_id 't-1', envelope 't-2'"])
    conflict = quarantine.alert(TOPIC, ["EVENT_ID_CONFLICT: x"])
    assert mismatch is not None
    assert conflict is not None
    assert (mismatch.severity, conflict.severity) == ("security", "warning")
    assert mismatch.subject == conflict.subject == "t-001/f-001/b-001/d-010"
    assert quarantine.alert(TOPIC, ["not JSON: x"]) is None
    assert quarantine.alert(TOPIC, ["NOT_REGISTERED: device 'd-1' is not known"]) is None


def test_named_returns_three_fields_of_an_event() -> None:
    raw = json.dumps({"event_id": "e", "event_type": "t", "trace_id": "x" * 999, "payload": 1})
    named = rules.named(raw.encode())
    assert (named.event_id, named.event_type, len(named.trace_id)) == ("e", "t", 128)
    for odd in (b"", b"[]", b"\xff", b'{"event_id": 7}', b"[" * 9999):
        assert rules.named(odd) == rules.Named()
