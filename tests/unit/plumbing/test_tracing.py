"""Traces: ids that every hop derives alone, sampling that all agree on, and nothing when off."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from uuid import uuid4

import pytest

from farmiq.plumbing import ids, otlp, tracing
from farmiq.plumbing.tls import Tls
from farmiq.plumbing.tracing import Span


class Collected:
    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self.spans: list[Span] = []

    def add(self, spans: Sequence[Span]) -> None:
        self.spans += spans


@pytest.fixture(autouse=True)
def _off_again() -> Iterator[None]:
    yield
    tracing.use(None)


def test_trace_of_a_uuid_is_the_uuid_and_of_any_other_text_a_hash() -> None:
    event = uuid4()
    assert tracing.trace_of(str(event)) == event.hex
    assert tracing.trace_of(event.hex.upper()) == event.hex
    for text in ("by-hand", "", "0" * 32, "ü" * 200):
        found = tracing.trace_of(text)
        assert len(found) == 32
        assert int(found, 16)


def test_hops_sample_the_same_share_of_time_ordered_ids() -> None:
    traces = [tracing.trace_of(str(ids.new())) for _ in range(4000)]
    sampled = [trace for trace in traces if tracing.is_sampled(trace, 0.1)]
    assert 200 < len(sampled) < 650
    assert all(tracing.is_sampled(trace, 0.5) for trace in sampled)
    assert not any(tracing.is_sampled(trace, 0.0) for trace in traces)


def test_batch_is_one_span_linked_with_its_events() -> None:
    collected = Collected(1.0)
    tracing.use(collected)
    events = [(uuid4(), "telemetry.ingested", str(uuid4())) for _ in range(200)]
    tracing.record(tracing.FORWARD, "s", events, started_ns=1, batch_id="b")
    batch, *each = collected.spans
    assert (len(each), len(batch.links), batch.attributes["farmiq.events"]) == (200, 128, 200)
    assert all(span.links == ((batch.trace_id, batch.span_id),) for span in each)
    assert each[0].parent_id == tracing.span_of(events[0][0], "ingress")
    tracing.record(tracing.INGEST, "t", events[:1], started_ns=2, batch_id="b")
    later = collected.spans[201]
    assert (later.trace_id, later.parent_id) == (batch.trace_id, batch.span_id)
    document = json.loads(json.dumps(otlp.document(collected.spans)))
    assert len(document["resourceSpans"]) == 2


def test_parent_that_came_with_an_event_wins_and_nonsense_does_not() -> None:
    collected = Collected(1.0)
    tracing.use(collected)
    event = (uuid4(), "kpi.daily.updated", "x")
    given = f"00-{'a' * 32}-{'b' * 16}-01"
    for parent in (given, "nonsense", None):
        tracing.record(tracing.CONSUME, "s", [event], started_ns=1, parents=[parent])
    found = [span.parent_id for span in collected.spans if span.links and span.name[0] == "c"]
    derived = tracing.span_of(event[0], "publish")
    assert [each for each in found if each] == ["b" * 16, derived, derived]


def test_off_is_nothing_and_the_exporter_is_not_even_imported() -> None:
    assert not tracing.is_on()
    assert tracing.traceparent("e", "t", "publish") is None

    handled = iter([("e", "telemetry.ingested", "t")])
    tracing.record(tracing.INGRESS, "s", handled, started_ns=1)
    assert len(list(handled)) == 1
    program = (
        "import sys, farmiq.process, farmiq.edge.ingress.service, farmiq.cloud.ingestion.service;"
        "print([m for m in sys.modules if m == 'farmiq.plumbing.otlp' or "
        "m.startswith('opentelemetry.sdk')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_queue_is_bounded_and_headers_are_read() -> None:
    exporter = otlp.Exporter("http://127.0.0.1:1", ratio=1.0, headers={}, tls=Tls())
    span = Span("s", "n", tracing.Kind.CLIENT, "a" * 32, "b" * 16, "", 1, 2, {}, ())
    before = otlp.SPANS.labels(outcome="dropped")._value.get()
    exporter.add([span] * (otlp.MAX_WAITING + 7))
    exporter.add([span])
    assert otlp.SPANS.labels(outcome="dropped")._value.get() == before + 8
    assert otlp.parse_headers("api-key=a%20b, x = y") == {"api-key": "a b", "x": "y"}
