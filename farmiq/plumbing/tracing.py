"""Traces of events over all hops, for OpenTelemetry; off unless an exporter was set.

One event is one trace. Its id follows from the envelope's trace_id, and the id of each hop's span
from the event and the hop, so every hop knows its parent: nothing is carried through MQTT 3.1.1
or the outbox, which have no place for it. Whether an event is traced follows from its trace too,
so all hops agree.

Hops work in batches: a batch that has a traced event is one span of its own, linked with theirs.
"""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import Protocol

# A collector cuts long lists of links; the events link to the batch as well.
MAX_LINKS = 128
_ID = re.compile(r"[0-9a-f]{32}")
_PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")

# (event_id, event_type, trace_id), as log.events takes them.
Handled = tuple[object, str, object]
Link = tuple[str, str]


class Kind(IntEnum):
    """As OTLP numbers them."""

    INTERNAL = 1
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


@dataclass(frozen=True, slots=True)
class Hop:
    """What is done with events at one place; `after` is the hop before it, if it is always one."""

    name: str
    kind: Kind
    after: str = ""


INGRESS = Hop("ingress", Kind.CONSUMER)
FORWARD = Hop("forward", Kind.CLIENT, after="ingress")
PUBLISH = Hop("publish", Kind.PRODUCER)
INGEST = Hop("publish", Kind.PRODUCER, after="forward")
CONSUME = Hop("consume", Kind.CONSUMER, after="publish")


@dataclass(frozen=True, slots=True)
class Span:
    """Ids are lower-case hex, times are Unix time in nanoseconds."""

    service: str
    name: str
    kind: Kind
    trace_id: str
    span_id: str
    parent_id: str
    started_ns: int
    ended_ns: int
    attributes: dict[str, str | int]
    links: tuple[Link, ...]


class Exporter(Protocol):
    """Takes spans without waiting."""

    ratio: float

    def add(self, spans: Sequence[Span]) -> None: ...


_exporter: Exporter | None = None


def use(exporter: Exporter | None) -> None:
    """From now on spans go there; None: there are none, and nothing is computed for them."""
    global _exporter  # noqa: PLW0603 - one per process, as the registry of metrics
    _exporter = exporter


def is_on() -> bool:
    return _exporter is not None


def trace_of(trace_id: str) -> str:
    """The trace of an envelope's trace_id: itself if it is a UUID or 32 hex digits, else a hash."""
    plain = trace_id.replace("-", "").lower()
    if _ID.fullmatch(plain) and plain.strip("0"):
        return plain
    return _hex(trace_id, 32)


def span_of(event_id: object, hop: str) -> str:
    return _hex(f"{hop} {event_id}", 16)


def traceparent(event_id: object, trace_id: object, hop: str) -> str | None:
    """W3C Trace Context of an event after a hop, if it is traced."""
    trace = trace_of(str(trace_id))
    if _exporter is None or not is_sampled(trace, _exporter.ratio):
        return None
    return f"00-{trace}-{span_of(event_id, hop)}-01"


def is_sampled(trace: str, ratio: float) -> bool:
    """By a hash: some of the bits of a UUID are the same in all of them."""
    return ratio >= 1 or int(_hex(trace, 8), 16) < ratio * 2**32


def batch_traceparent(batch_id: str, hop: str) -> str:
    return f"00-{trace_of(batch_id)}-{span_of(batch_id, hop)}-01"


def record(
    hop: Hop,
    service: str,
    handled: Iterable[Handled],
    *,
    started_ns: int,
    batch_id: str = "",
    parents: Sequence[str | None] = (),
) -> None:
    """Spans of what a hop has just done with these events, one each and one for all of them.

    `parents` are the traceparents that came with the events, where the hop before may have been
    another than `after`.
    """
    if _exporter is None:
        return
    ended_ns = time.time_ns()
    batch_id = batch_id or str(ended_ns)
    batch = (trace_of(batch_id), span_of(batch_id, hop.name))
    count, spans = 0, []
    for count, (event_id, event_type, trace_id) in enumerate(handled, 1):
        trace = trace_of(str(trace_id))
        if not is_sampled(trace, _exporter.ratio):
            continue
        given = _PARENT.fullmatch(parents[count - 1] or "") if parents else None
        derived = span_of(event_id, hop.after) if hop.after else ""
        spans.append(
            Span(
                service,
                f"{hop.name} {event_type}",
                hop.kind,
                trace,
                span_of(event_id, hop.name),
                given[2] if given else derived,
                started_ns,
                ended_ns,
                {"farmiq.event_id": str(event_id), "farmiq.trace_id": str(trace_id)},
                (batch,),
            )
        )
    if spans:
        links = tuple((span.trace_id, span.span_id) for span in spans[:MAX_LINKS])
        parent = span_of(batch_id, hop.after) if hop is INGEST else ""
        attributes: dict[str, str | int] = {"farmiq.events": count}
        together = Span(
            service, f"{hop.name} batch", hop.kind, *batch, parent, started_ns, ended_ns,
            attributes, links,
        )  # fmt: skip
        _exporter.add([together, *spans])


def _hex(text: str, digits: int) -> str:
    return sha256(text.encode()).hexdigest()[:digits]
