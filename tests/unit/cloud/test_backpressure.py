"""When a queue holds batches back, and when it does not."""

import pytest

from farmiq.cloud.bus import TELEMETRY_QUEUE
from farmiq.cloud.ingestion.backpressure import STALLED_S, Depth, per_queue

LIMIT = 100


def test_events_are_counted_per_queue_and_unbound_types_in_none() -> None:
    assert per_queue(["telemetry.ingested", "telemetry.ingested", "unknown"]) == {
        TELEMETRY_QUEUE: 2
    }


def test_queue_nobody_looked_at_yet_is_not_full() -> None:
    assert not Depth(0.0, admitted=1000).is_full(LIMIT, now=0.0)


@pytest.mark.parametrize(("waiting", "admitted", "full"), [(99, 0, False), (60, 40, True)])
def test_queue_is_full_by_what_waits_and_what_was_admitted_since(
    waiting: int, admitted: int, *, full: bool
) -> None:
    depth = Depth(0.0)
    depth.admitted = waiting + 1
    depth.looked(waiting, 1, now=1.0)
    depth.admitted = admitted
    assert depth.is_full(LIMIT, now=1.1) is full


def test_queue_without_a_consumer_is_never_full() -> None:
    depth = Depth(0.0, admitted=500)
    depth.looked(400, 0, now=1.0)
    assert not depth.is_full(LIMIT, now=1.0)


def test_queue_that_nothing_leaves_is_not_full_until_it_moves_again() -> None:
    depth = Depth(0.0, admitted=500)
    depth.looked(400, 1, now=1.0)
    later = 1.0 + STALLED_S
    depth.looked(400, 1, now=later)
    assert not depth.is_full(LIMIT, now=later)
    depth.looked(390, 1, now=later)
    assert depth.is_full(LIMIT, now=later)
