"""What `farmiq trace` says of times and of an event that waits."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from farmiq import trace_hops
from farmiq.trace_hops import Hop

AT = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)
ID = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0200"


def hop(site: str, seconds: float | None) -> Hop:
    return Hop(site, "place", None if seconds is None else AT + timedelta(seconds=seconds), "note")


def test_time_between_clocks_that_differ_is_never_negative() -> None:
    hops = [hop("device", 1.441), hop("edge", 0), hop("edge", 0.25), hop("cloud", -90)]
    found = trace_hops.timed([*hops, hop("cloud", 7300), hop("cloud", None)])
    assert [after for _, after in found] == ["", "+0 ms", "+250 ms", "", "+2.0 h", ""]
    assert found[0][0].note == "note; its clock is 1,441 ms ahead"
    assert found[3][0].note == "note; by the cloud's clock, which is 90 s behind"


def test_device_that_sent_earlier_has_no_note_about_its_clock() -> None:
    """It may have been offline: nothing tells its buffer from its clock."""
    found = trace_hops.timed([hop("device", -3600), hop("edge", 0)])
    assert [(each.note, after) for each, after in found] == [("note", ""), ("note", "+0 ms")]


def owed(status: str, **changes: Any) -> dict[str, Any]:
    row = {
        "id": ID, "tenant_id": "t-1", "status": status, "attempt_count": 2,
        "last_error_code": None, "last_error_message": None, "dlq_reason": None,
    }  # fmt: skip
    return row | changes


@pytest.mark.parametrize(
    ("row", "trouble", "says", "command"),
    [
        (owed("acked"), None, "acked, attempts that failed: 2", ""),
        (
            owed("dlq", dlq_reason="rejected:VALIDATION_ERROR", last_error_message="unit missing"),
            None,
            "rejected:VALIDATION_ERROR (unit missing)",
            f"farmiq outbox redrive {ID}",
        ),
        (
            owed("pending"),
            {
                "consecutive_failures": 7, "paused_until": AT, "last_error_code": "HTTP_403",
                "last_error_message": "tenant 't-1' is not registered here",
            },
            "tries of tenant t-1 in (HTTP_403: tenant 't-1' is not registered here); paused until",
            "farmiq alert ls --kind sync",
        ),
        (
            owed("pending", last_error_code="NETWORK_ERROR"),
            {
                "consecutive_failures": 3, "paused_until": AT, "last_error_code": None,
                "last_error_message": None,
            },
            "the last 3 tries of tenant t-1 failed (NETWORK_ERROR); paused until",
            "farmiq outbox stats",
        ),
    ],
)  # fmt: skip
def test_waiting_event_names_the_reason_and_the_next_command(
    row: dict[str, Any], trouble: dict[str, Any] | None, says: str, command: str
) -> None:
    note, found = trace_hops.delivery(row, trouble)
    assert says in note
    assert command in found
