"""How much is sent at once, and what travels apart."""

from datetime import UTC, datetime
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.sync import rules
from farmiq.edge.sync.rules import LEASE_EXPIRED, BatchSizer, Claimed

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def claimed(
    number: int,
    *,
    size_bytes: int = 100,
    attempt_count: int = 0,
    last_error_code: str | None = None,
    reclaimed: bool = False,
) -> Claimed:
    row_id = UUID(int=number)
    return Claimed(row_id, "t", size_bytes, attempt_count, last_error_code, NOW, reclaimed)


def numbers(parts: list[list[Claimed]]) -> list[list[int]]:
    return [[row.id.int for row in part] for part in parts]


def test_batch_sizer_shrinks_after_a_failure() -> None:
    slow = BatchSizer(500, 500).shrink()
    assert slow.size == rules.PROBE_EVENTS
    while (slower := slow.shrink()) != slow:
        slow = slower
    assert slow.size == 1


def test_batch_sizer_doubles_after_each_delivery_up_to_the_maximum() -> None:
    found = [BatchSizer(500, 1)]
    while found[-1].size < 500:
        found.append(found[-1].grow())
    assert [one.size for one in found] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 500]
    assert found[-1].grow() == found[-1]


def test_plan_sends_rows_that_failed_alone_behind_the_healthy() -> None:
    rows = [
        claimed(1, attempt_count=2, last_error_code="HTTP_500"),
        claimed(2),
        claimed(3, attempt_count=4, last_error_code="NETWORK_ERROR"),
        claimed(4, attempt_count=1, last_error_code=LEASE_EXPIRED),
        claimed(5, attempt_count=1, last_error_code=LEASE_EXPIRED),
        claimed(6, attempt_count=2, last_error_code=LEASE_EXPIRED),
        claimed(7, attempt_count=1, last_error_code="HTTP_500"),
        claimed(8),
        claimed(9, attempt_count=3, last_error_code=LEASE_EXPIRED),
        claimed(10, reclaimed=True),
    ]
    plan = rules.plan(rows, max_bytes=10_000_000)
    assert numbers([plan.first]) == [[2, 3, 8]]
    assert numbers(plan.parts) == [[10], [4, 5], [1], [7], [6]]
    assert numbers([plan.release]) == [[9]]  # it may be what kills forwarders, and so may 6


@given(
    st.lists(st.integers(0, 300_000), max_size=60),
    st.integers(1_000_000, 6_000_000),
)
def test_plan_parts_fit_into_a_batch_and_hold_every_row(sizes: list[int], max_bytes: int) -> None:
    rows = [claimed(number, size_bytes=size) for number, size in enumerate(sizes)]
    plan = rules.plan(rows, max_bytes=max_bytes)
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
