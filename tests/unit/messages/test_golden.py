"""Every JSON example of the documents is read into our types and comes out equal.

`examples/` holds them word for word, named after document and event. The schematic envelope of
001 shows placeholders and is refused; the third example of 002 is wrong on purpose.
"""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from farmiq.cloud.ingestion import batch
from farmiq.messages import bus, catalogue, envelope, mqtt, topics
from farmiq.messages.check import InvalidError
from farmiq.messages.topics import Place, SessionTopic

EXAMPLES = Path(__file__).parent / "examples"
SESSION = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0300"
FROM_DEVICES = sorted(path.name for path in EXAMPLES.glob("000.*.json"))
ON_THE_BUS = sorted(
    path.name
    for pattern in ("001.*.json", "002.*.feed.lot.received.json")
    for path in EXAMPLES.glob(pattern)
    if "schematic" not in path.name
)
BATCHES = ("002.example-1.request.json", "002.example-4.request.json")


def raw(name: str) -> bytes:
    return (EXAMPLES / name).read_bytes()


def again(payload: msgspec.Raw, kind: Any) -> Any:
    """A payload read into its type and written again."""
    return json.loads(msgspec.json.encode(msgspec.json.decode(payload, type=kind)))


def session_topic(event_type: str) -> str:
    tenant_id = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002"
    where = SessionTopic(tenant_id, "f-001", "b-001", "station-1", UUID(SESSION), event_type)
    return topics.session(where)


def test_documents_have_these_examples() -> None:
    assert (len(FROM_DEVICES), len(ON_THE_BUS), len(list(EXAMPLES.glob("*.json")))) == (3, 9, 19)


@pytest.mark.req("WV-08", "WV-11", "WV-17")
@pytest.mark.parametrize("name", FROM_DEVICES)
def test_what_a_device_sends_comes_out_equal(name: str) -> None:
    sent = json.loads(raw(name))

    message = mqtt.read(session_topic(sent["event_type"]), raw(name))

    worn = json.loads(msgspec.json.encode(message.envelope))
    payload = again(message.envelope.payload, message.kind.payload)
    assert {**worn, "payload": payload} == worn == sent
    assert isinstance(message.payload, message.kind.payload)


@pytest.mark.req("RB-10", "RB-17", "RB-18", "RB-20", "RB-21", "FB-16")
@pytest.mark.parametrize("name", ON_THE_BUS)
def test_what_the_bus_carries_comes_out_equal(name: str) -> None:
    sent = json.loads(raw(name))

    event = bus.read(raw(name))

    written = json.loads(bus.write(event))
    payload = again(event.payload, catalogue.BUS[event.event_type].payload)
    assert {**written, "payload": payload} == written == sent
    assert written.keys() == sent.keys()  # absent stays absent, null stays null


@pytest.mark.req("FB-06", "FB-11")
@pytest.mark.parametrize("name", BATCHES)
def test_batch_comes_out_equal(name: str) -> None:
    sent = json.loads(raw(name))

    read = batch.read(raw(name))

    written = [json.loads(bus.write(event)) for event in read.events]
    assert {"batchId": read.batch_id, "events": written} == sent
    for event in read.events:
        kind = catalogue.BUS[event.event_type]
        assert again(event.payload, kind.payload) == msgspec.json.decode(event.payload)


@pytest.mark.req("FB-10")
def test_batch_that_is_wrong_on_purpose_gets_the_documented_words() -> None:
    answer = json.loads(raw("002.example-3.response.json"))

    with pytest.raises(batch.BadBatchError) as refused:
        batch.read(raw("002.example-3.request.json"))

    assert refused.value.message == answer["error"]["message"]


def test_schematic_envelope_is_refused_for_its_placeholders() -> None:
    with pytest.raises(InvalidError) as refused:
        bus.read(raw("001.envelope.schematic.json"))

    said = "; ".join(refused.value.reasons)
    for name in ("event_id", "session_id", "payload"):
        assert f"$.{name}" in said


@pytest.mark.parametrize("name", [*FROM_DEVICES, *ON_THE_BUS])
def test_field_more_is_kept_and_not_in_the_way(name: str) -> None:
    """Consumers ignore what they do not know, and hand it on."""
    sent = json.loads(raw(name))
    newer = {**sent, "payload": {**sent["payload"], "from_the_future": [None, {"x": 1}]}}
    if name in FROM_DEVICES:
        read: Any = envelope.read(json.dumps(newer).encode())
    else:
        read = bus.read(json.dumps(newer).encode())
    assert msgspec.json.decode(read.payload) == newer["payload"]


def test_image_without_a_session_comes_on_the_events_topic() -> None:
    place = Place("t-001", "f-001", "b-001", "d-010")
    payload = {"media_id": SESSION, "size_bytes": 204800, "sha256": None}
    sent = {
        **json.loads(raw(FROM_DEVICES[0])),
        "tenant_id": place.tenant_id,
        "device_id": place.device_id,
        "event_type": "weighvision.image.captured",
        "payload": payload,
    }

    message = mqtt.read(
        topics.event(place, "weighvision.image.captured"), json.dumps(sent).encode()
    )

    assert again(message.envelope.payload, message.kind.payload) == payload
