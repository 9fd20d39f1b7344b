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
    assert not Depth(0.0, published=1000).is_full(LIMIT, now=0.0)


@pytest.mark.parametrize(
    ("waiting", "published", "on_the_way", "full"),
    [(99, 0, 0, False), (60, 40, 0, True), (60, 0, 40, True), (60, 20, 19, False)],
)
def test_queue_is_full_by_what_waits_was_published_since_and_is_on_the_way(
    waiting: int, published: int, on_the_way: int, *, full: bool
) -> None:
    depth = Depth(0.0, published=waiting + 1)
    depth.looked(waiting, 1, seen=waiting + 1, now=1.0)
    depth.published, depth.on_the_way = published, on_the_way
    assert depth.is_full(LIMIT, now=1.1) is full


def test_what_is_published_while_the_queue_is_looked_at_counts_until_the_next_look() -> None:
    """The look may have counted it or not: rather twice than not at all."""
    depth = Depth(0.0, published=30)
    depth.published += 50
    depth.looked(20, 1, seen=30, now=1.0)
    assert (depth.waiting, depth.published) == (20, 50)


def test_queue_without_a_consumer_is_never_full() -> None:
    depth = Depth(0.0, published=500)
    depth.looked(400, 0, seen=500, now=1.0)
    assert not depth.is_full(LIMIT, now=1.0)


def test_queue_that_nothing_leaves_is_not_full_until_it_moves_again() -> None:
    depth = Depth(0.0, published=500)
    depth.looked(400, 1, seen=500, now=1.0)
    later = 1.0 + STALLED_S
    depth.looked(400, 1, seen=0, now=later)
    assert not depth.is_full(LIMIT, now=later)
    depth.looked(390, 1, seen=0, now=later)
    assert depth.is_full(LIMIT, now=later)
