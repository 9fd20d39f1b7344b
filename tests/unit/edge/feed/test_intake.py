"""What a device says of feed becomes the events of document 002."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from farmiq.edge.arrival import accept
from farmiq.edge.feed import rules
from farmiq.edge.feed.api import LotBody
from farmiq.messages import bus, topics
from farmiq.messages.topics import Place
from farmiq.plumbing.http import HttpError
from tests.unit.messages import samples

EXAMPLES = Path(samples.__file__).parent / "examples"
NOW = datetime(2025, 1, 2, 10, 0, 1, tzinfo=UTC)


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXAMPLES / name).read_bytes())
    return found


def intakes(event_type: str, payload: str, **changes: Any) -> list[rules.Intake]:
    """Of a message whose payload is written exactly like this."""
    place = Place("t-001", "f-001", "b-001", "d-010")
    worn = {
        "schema_version": "1.0",
        "event_id": "0190a1d1-9999-7d3f-b2e4-9e8b5f8e0101",
        "trace_id": "trace-201",
        "tenant_id": place.tenant_id,
        "device_id": place.device_id,
        "event_type": event_type,
        "ts": "2025-01-02T10:00:00Z",
        **changes,
    }
    raw = json.dumps(worn)[:-1] + f', "payload" : {payload} }}'
    return rules.intakes_of(accept(topics.event(place, event_type), raw.encode(), now=NOW))


@pytest.mark.req("FB-01", "FB-11")
@pytest.mark.parametrize(
    "payload",
    [
        '{"quantity_kg": 25.5, "feed_lot_id": "lot-001"}',
        '{ "source":"SILO_AUTO","feed_lot_id":"lot-001","quantity_kg":25.50}',
    ],
)
def test_a_dispensing_is_the_event_of_example_1(payload: str) -> None:
    (found,) = intakes("feed.dispensed", payload)
    (documented,) = example("002.example-1.request.json")["events"]
    written = json.loads(bus.write(found.event))
    assert written.pop("session_id") is None  # the outbox has a column for it, feed says nothing
    assert written == documented
    assert (found.source, found.quantity_kg, found.feed_lot_id) == ("SILO_AUTO", 25.5, "lot-001")
    bus.read(bus.write(found.event))


def test_every_key_and_every_digit_of_the_device_is_kept() -> None:
    (found,) = intakes(
        "feed.dispensed",
        '{"quantity_kg": 1.10000000000000000001, "auger": {"rpm": 31}, "feed_lot_id": null}',
    )
    assert b"1.10000000000000000001" in bytes(found.event.payload)
    said = msgspec.json.decode(found.event.payload)
    assert said["auger"] == {"rpm": 31}
    assert (said["source"], said["feed_lot_id"], found.feed_lot_id) == ("SILO_AUTO", None, None)


@pytest.mark.req("FB-03")
def test_an_import_is_an_intake_per_row_under_ids_of_its_own() -> None:
    payload = json.dumps(samples.BY_DEVICES["feed.imported"])
    found = intakes("feed.imported", payload)
    assert [(each.source, each.quantity_kg, each.feed_lot_id) for each in found] == [
        ("IMPORT", 25.5, "lot-001"),
        ("IMPORT", 12.0, "lot-002"),
        ("IMPORT", 0.0, "lot-002"),
    ]
    assert [each.event.event_id for each in found] == [
        each.event.event_id for each in intakes("feed.imported", payload)
    ]
    other = intakes("feed.imported", payload, event_id="0190a1d1-9999-7d3f-b2e4-9e8b5f8e0102")
    assert len({each.key for each in (*found, *other)}) == 6
    for each in found:
        event = bus.read(bus.write(each.event))
        assert event.event_type == "feed.intake.recorded"
        assert msgspec.json.decode(event.payload)["ref"] == each.import_ref
        assert each.event.event_id.version == 7


def test_a_row_cannot_say_where_it_comes_from() -> None:
    row = '{"feed_lot_id":"l","quantity_kg":1,"ref":"r","source":"MANUAL"}'
    (found,) = intakes("feed.imported", f'{{"rows":[{row}]}}')
    assert msgspec.json.decode(bus.read(bus.write(found.event)).payload)["source"] == "IMPORT"


@pytest.mark.req("FB-12", "FB-16")
def test_a_lot_is_the_event_of_example_2() -> None:
    documented = example("002.example-2.feed.lot.received.json")
    body = {
        **{name: documented[name] for name in ("tenant_id", "farm_id", "barn_id", "occurred_at")},
        **documented["payload"],
        "event_id": documented["event_id"],
    }
    raw = json.dumps(body).encode()
    received = LotBody.decode(raw)
    event = rules.lot_event(received, raw, event_id=body["event_id"], trace_id="trace-202", now=NOW)
    assert json.loads(bus.write(event)) == documented
    assert b'"quantity_kg":5000}' in bus.write(event)


def test_everything_that_is_wrong_with_a_lot_is_told() -> None:
    raw = b'{"tenant_id":"a/b","quantity_kg":-1,"occurred_at":"2025-01-01T00:00:00","colour":1}'
    with pytest.raises(HttpError) as refused:
        LotBody.decode(raw)
    said = str(refused.value.details)
    for name in ("tenant_id", "farm_id", "barn_id", "feed_lot_id", "quantity_kg", "occurred_at"):
        assert name in said
    assert "colour" in said


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"7", b"{", b"[" * 5000, b"\xff", b'"x"'])
def test_what_is_no_lot_at_all_is_refused(raw: bytes) -> None:
    with pytest.raises(HttpError):
        LotBody.decode(raw)
