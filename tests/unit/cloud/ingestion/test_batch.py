"""The body of a batch: the contract's examples, its limits, and a reason for every bad event."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.cloud.ingestion import batch
from farmiq.cloud.ingestion.batch import BadBatchError, TooLargeError
from farmiq.messages import bus, catalogue, check
from tests.support import bad_input
from tests.support.properties import drawn
from tests.unit.messages import examples

EVENT = examples.event_fields()


def body(*events: Any, **more: Any) -> bytes:
    return json.dumps({"events": list(events), **more}).encode()


def refusal(raw: bytes) -> BadBatchError:
    with pytest.raises(BadBatchError) as refused:
        batch.read(raw)
    return refused.value


# --- the four examples of the contract, as telemetry


def test_example_1_a_batch() -> None:
    read = batch.read(body(EVENT, batchId="batch-aaa"))

    assert read.batch_id == "batch-aaa"
    assert [json.loads(bus.write(event)) for event in read.events] == [EVENT]


def test_example_2_an_event_without_device() -> None:
    event = {name: value for name, value in EVENT.items() if name != "device_id"}

    (read,) = batch.read(body(event, batchId="batch-aaa")).events

    assert catalogue.BUS[read.event_type].exchange == "farmiq.telemetry.exchange"
    assert json.loads(bus.write(read)) == event


def test_example_3_an_invalid_envelope() -> None:
    refused = refusal(b'{ "events": [ { "event_type": "telemetry.ingested" } ] }')

    assert refused.message == "event_id and tenant_id are required"
    assert refused.details is not None
    assert [detail["index"] for detail in refused.details] == [0]


def test_example_4_an_event_that_comes_again_reads_as_the_same_event() -> None:
    again = {**EVENT, "trace_id": "trace-203"}

    first, second = batch.read(body(EVENT, again, batchId="batch-bbb")).events

    assert first.event_id == second.event_id
    assert bus.content_hash(first) == bus.content_hash(second)


# --- details


@pytest.mark.parametrize("name", ["event_id", "tenant_id"])
def test_either_id_missing_is_told_in_the_contracts_words(name: str) -> None:
    event = {key: value for key, value in EVENT.items() if key != name}

    assert refusal(body(event)).message == "event_id and tenant_id are required"


def test_every_bad_event_is_named_by_its_index_and_id() -> None:
    refused = refusal(
        body(EVENT, {**EVENT, "payload": {}}, EVENT, "text", {**EVENT, "event_id": 5}, EVENT)
    )

    assert refused.details is not None
    assert [(one["index"], one["event_id"]) for one in refused.details] == [
        (1, examples.EVENT_ID),
        (3, None),
        (4, "5"),
    ]
    assert refused.message.startswith("3 of 6 events are not valid; first: missing")


def test_all_reasons_of_one_event_stand_in_its_detail() -> None:
    refused = refusal(body({**EVENT, "farm_id": None, "payload": {"unit": "C"}}))

    assert refused.details is not None
    assert refused.details[0]["reason"].count(";") == 2


def test_bytes_that_are_not_text_blame_their_event_alone() -> None:
    refused = refusal(body(EVENT, "here", EVENT).replace(b'"here"', b'{"event_id":"\xff"}'))

    assert refused.details is not None
    assert [one["index"] for one in refused.details] == [1]


def test_an_event_type_that_is_not_registered_is_refused() -> None:
    refused = refusal(body({**EVENT, "event_type": "feed.guessed"}))

    assert refused.details is not None
    assert refused.details[0]["reason"] == "event_type 'feed.guessed' is not registered"


def test_reasons_and_messages_are_cut() -> None:
    refused = refusal(body({**EVENT, "event_type": "x" * 100, "event_id": "y" * 9000}))

    assert refused.details is not None
    assert len(refused.details[0]["event_id"]) == 64
    assert len(refused.message) <= 500
    assert len(refused.details[0]["reason"]) <= 1000


# --- the frame


def test_the_batch_id_may_be_left_out() -> None:
    assert batch.read(body(EVENT)).batch_id is None


def test_a_batch_may_be_empty() -> None:
    assert batch.read(body()).events == ()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not JSON"),
        (b"[]", "expected an object, got an array"),
        (b"{}", "missing required field `events`"),
        (b'{"events":{}}', "Expected `array`"),
        (b'{"events":[],"batchId":5}', "Expected `str | null`"),
        (b'{"events":[],"batchId":"a b"}', "matching regex"),
        (b'{"events":[' + b"[" * 10_000, "nested deeper"),
    ],
)
def test_an_odd_frame_is_refused_as_a_whole(raw: bytes, said: str) -> None:
    refused = refusal(raw)

    assert said in refused.message
    assert refused.details is None


def test_a_wrong_frame_hides_no_event() -> None:
    refused = refusal(body(EVENT, {**EVENT, "payload": {}}, batchId="a b", x="\0"))

    assert refused.details is not None
    assert [one["index"] for one in refused.details] == [1]
    assert "- at `$.batchId`; 1 of 2 events are not valid; first: missing" in refused.message
    assert refused.message.startswith("contains a NUL character - at `$.x`; ")


def test_a_wrong_event_is_told_once_with_the_event() -> None:
    refused = refusal(body({**EVENT, "trace_id": "a\0"}, {**EVENT, "farm_id": None}))

    assert refused.message.startswith("2 of 2 events are not valid; first: contains a NUL")
    assert refused.details is not None
    assert [one["index"] for one in refused.details] == [0, 1]


def test_an_event_may_be_as_deep_in_a_batch_as_alone() -> None:
    event = examples.event_with_payload(
        b'{"metric_type":"m","metric_value":1,"unit":"C","x":' + b"[" * 31 + b"]" * 31 + b"}"
    )
    assert bus.read(event).event_type == "telemetry.ingested"

    assert len(batch.read(b'{"events":[' + event + b"]}").events) == 1
    deeper = event.replace(b"[" * 31 + b"]" * 31, b"[" * 32 + b"]" * 32)
    assert refusal(b'{"events":[' + deeper + b"]}").details is not None


@given(seed=st.integers(0, 2**32), frame_is_wrong=st.booleans())
@drawn(300)
def test_all_that_is_wrong_with_a_batch_is_named(seed: int, *, frame_is_wrong: bool) -> None:
    rng = Random(seed)
    drafts = [bad_input.harmed_event(rng) for _ in range(rng.randint(1, 3))]
    events = [json.dumps(EVENT).encode(), *(draft.raw() for draft in drafts)]
    batch_id = b'"a/b"' if frame_is_wrong else b'"b-1"'

    refused = refusal(b'{"batchId":' + batch_id + b',"events":[' + b",".join(events) + b"]}")

    assert ("- at `$.batchId`; " in refused.message) == frame_is_wrong
    assert refused.details is not None
    assert [detail["index"] for detail in refused.details] == list(range(1, len(events)))
    for draft, detail in zip(drafts, refused.details, strict=True):
        assert all(said in detail["reason"] for said in draft.said), (draft.said, detail)


def test_at_most_500_events() -> None:
    assert len(batch.read(body(*[EVENT] * 500)).events) == 500

    refused = refusal(body(*[EVENT] * 501))
    assert isinstance(refused, TooLargeError)
    assert refused.message == "501 events in one batch, at most 500"


def test_text_that_only_looks_like_a_nul_does_not_refuse_a_batch() -> None:
    (read,) = batch.read(body({**EVENT, "trace_id": r"a\u0000"})).events

    assert read.trace_id == r"a\u0000"


def test_a_nul_refuses_the_batch() -> None:
    assert "NUL" in refusal(body(EVENT, {**EVENT, "trace_id": "a\x00"})).message


@given(st.binary(max_size=200) | st.builds(lambda raw: b'{"events":[' + raw + b"]}", st.binary()))
def test_any_body_is_a_batch_or_a_bad_batch(raw: bytes) -> None:
    try:
        read = batch.read(raw)
    except BadBatchError as bad:
        read = None
        message = bad.message
    assert read is not None or message


@pytest.mark.parametrize("around", [b'{"events":[{"a":[%s]}]}', b'{"events":[],"x":[%s]}', b"[%s]"])
def test_more_values_than_anybody_looks_at_are_refused_without_looking(around: bytes) -> None:
    bomb = around % b",".join([b"{}"] * (batch.MAX_VALUES + 1))
    with pytest.raises(batch.BadBatchError) as refused:
        batch.read(bomb)
    assert "values" in str(refused.value.details or refused.value.message)


def test_a_large_good_batch_is_not_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read quickly stays quick, however many events there are."""
    monkeypatch.setattr(check, "look", lambda *_, **__: pytest.fail("the slow path"))
    assert len(batch.read(body(*[EVENT] * 500, batchId="b")).events) == 500
