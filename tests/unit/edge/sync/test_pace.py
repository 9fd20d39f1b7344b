"""How much is sent at once, and what travels apart."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.sync import rules
from farmiq.edge.sync.rules import LEASE_EXPIRED, BatchSizer

OUTAGES = ("NETWORK_ERROR",)


@dataclass(frozen=True)
class Row:
    number: int
    size_bytes: int = 100
    attempt_count: int = 0
    last_error_code: str | None = None
    reclaimed: bool = False


def numbers(parts: list[list[Row]]) -> list[list[int]]:
    return [[row.number for row in part] for part in parts]


def test_a_batch_that_did_not_get_through_makes_the_next_one_small() -> None:
    slow = BatchSizer(500, 500).shrink()
    assert slow.size == rules.PROBE_EVENTS
    while (slower := slow.shrink()) != slow:
        slow = slower
    assert slow.size == 1


def test_each_that_gets_through_doubles_it_up_to_the_most() -> None:
    found = [BatchSizer(500, 1)]
    while found[-1].size < 500:
        found.append(found[-1].grow())
    assert [one.size for one in found] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 500]
    assert found[-1].grow() == found[-1]


def test_what_failed_on_its_own_travels_alone_behind_the_healthy() -> None:
    rows = [
        Row(1, attempt_count=2, last_error_code="HTTP_500"),
        Row(2),
        Row(3, attempt_count=4, last_error_code="NETWORK_ERROR"),
        Row(4, attempt_count=1, last_error_code=LEASE_EXPIRED),
        Row(5, attempt_count=1, last_error_code=LEASE_EXPIRED),
        Row(6, attempt_count=2, last_error_code=LEASE_EXPIRED),
        Row(7, attempt_count=1, last_error_code="HTTP_500"),
        Row(8),
        Row(9, attempt_count=3, last_error_code=LEASE_EXPIRED),
        Row(10, reclaimed=True),
    ]
    plan = rules.plan(rows, max_bytes=10_000_000, outage_codes=OUTAGES)
    assert numbers([plan.first]) == [[2, 3, 8]]
    assert numbers(plan.parts) == [[10], [4, 5], [1], [7], [6]]
    assert numbers([plan.release]) == [[9]]  # it may be what kills forwarders, and so may 6


@given(
    st.lists(st.integers(0, 300_000), max_size=60),
    st.integers(1_000_000, 6_000_000),
)
def test_no_part_is_larger_than_a_batch_may_be_and_none_is_lost(
    sizes: list[int], max_bytes: int
) -> None:
    rows = [Row(number, size_bytes=size) for number, size in enumerate(sizes)]
    plan = rules.plan(rows, max_bytes=max_bytes, outage_codes=OUTAGES)
    parts = [plan.first, *plan.parts] if rows else []
    assert [row for part in parts for row in part] == rows
    assert plan.release == []
    for part in parts:
        assert part
        assert sum(row.size_bytes + rules.ENVELOPE_BYTES for row in part) <= max_bytes


def test_new_events_get_a_higher_priority_when_too_many_wait_at_theirs() -> None:
    assert rules.next_level(0, waiting_at_level=rules.BACKLOG_ROWS) == 0
    assert rules.next_level(0, waiting_at_level=rules.BACKLOG_ROWS + 1) == 1
    assert rules.next_level(1, waiting_at_level=5) == 1
    assert rules.next_level(1, waiting_at_level=rules.BACKLOG_ROWS + 1) == 2
