"""Who sends more than it may, and for how long it is held back."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from farmiq.plumbing.broker import flood
from farmiq.plumbing.broker.flood import Flow, Pause
from farmiq.plumbing.broker.load import Connection, since

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_flow_beyond_its_burst_is_rejected() -> None:
    flow = Flow(per_second=10, burst=100)
    assert flow.beyond({"a": 100, "b": 1}, now=0) == []
    assert flow.beyond({"a": 1, "b": 1}, now=0) == ["a"]


def test_the_sustained_rate_passes_for_ever() -> None:
    flow = Flow(per_second=10, burst=100)
    flow.beyond({"a": 100}, now=0)
    assert [flow.beyond({"a": 10}, now=now) for now in range(1, 1000)] == [[]] * 999
    assert flow.beyond({"a": 11}, now=1000) == ["a"]


def test_flow_after_a_long_time_without_a_look_is_not_a_burst() -> None:
    flow = Flow(per_second=10, burst=100)
    flow.beyond({"a": 1}, now=0)
    assert flow.beyond({"a": 36_000, "b": 36_000, "c": 36_101}, now=3600) == ["c"]


def test_paused_sender_is_not_counted_and_returns_with_a_small_burst() -> None:
    flow = Flow(per_second=10, burst=1000)
    assert flow.beyond({"a": 1001}, now=0) == ["a"]
    flow.pause("a", lasts_s=60, now=0)
    assert flow.beyond({"a": 5000}, now=59) == []
    assert flow.beyond({"a": 50}, now=60) == []
    assert flow.beyond({"a": 1}, now=60) == ["a"]


def test_flow_without_a_rate_rejects_nobody() -> None:
    assert Flow(per_second=0, burst=1).beyond({"a": 10**9}, now=0) == []


def test_calm_sender_has_no_entry() -> None:
    flow = Flow(per_second=10, burst=100)
    for number in range(1000):
        flow.beyond({f"d-{number}": 50}, now=number)
    assert len(flow._left) <= 6


def test_pauses_grow_to_a_bound_and_begin_anew_after_a_calm() -> None:
    pause, lengths = None, []
    now = NOW
    for _ in range(6):
        pause = flood.following(pause, now=now)
        lengths.append((pause.until_at - now).total_seconds())
        now = pause.until_at + timedelta(seconds=1)
    assert lengths == [10, 20, 40, 60, 60, 60]
    later = flood.following(pause, now=now + timedelta(seconds=flood.CALM_S))
    assert later == Pause(now + timedelta(seconds=flood.CALM_S + 10))


@pytest.mark.parametrize(
    ("before", "counted"),
    [({}, {"a": 12, "b": 3}), ({1: 5, 2: 5}, {"a": 2, "b": 3}), ({1: 7, 2: 5, 3: 9}, {})],
)
def test_connections_are_counted_by_user_since_the_last_look(
    before: dict[int, int], counted: dict[str, int]
) -> None:
    found = [Connection(1, 7, 70, "a"), Connection(2, 5, 50, "a"), Connection(3, 3, 30, "b")]
    known = {cid: Connection(cid, count, count * 10) for cid, count in before.items()}
    sent = since(known, found)
    assert sent.messages == Counter(counted)
    assert sent.size_bytes == Counter({who: count * 10 for who, count in counted.items()})
