"""How complete a day is: bands at their edges, and the texts of document 004."""

from datetime import date

import pytest

from farmiq.cloud import completeness


@pytest.mark.req("DB2-04")
@pytest.mark.parametrize(
    ("completed", "expected", "band", "shown"),
    [
        (6, 6, "complete", 100), (7, 6, "complete", 100), (199, 200, "acceptable", 99),
        (4, 5, "acceptable", 80), (799, 1000, "warning", 79), (1, 2, "warning", 50),
        (499, 1000, "alert", 49), (0, 6, "alert", 0), (0, 0, "n/a", None), (3, 0, "n/a", None),
    ],
)  # fmt: skip
def test_bands_go_by_the_exact_share_and_people_see_at_most_100(
    completed: int, expected: int, band: str, shown: int | None
) -> None:
    assert completeness.band(completed, expected) == band
    assert completeness.shown(completed, expected) == shown


def test_the_raw_value_is_kept() -> None:
    assert completeness.percent(12, 10) == 120.0
    assert completeness.percent(5, 6) == 83.33
    assert completeness.percent(1, 0) is None


def test_a_bar_is_the_share_of_its_width_and_never_longer() -> None:
    assert completeness.bar(5, 6) == "[" + "█" * 19 + "░" * 4 + "]"
    assert completeness.bar(1, 2, width=5) == "[███░░]", "a half is rounded up"
    assert completeness.bar(9, 3, width=4) == "[████]"
    assert completeness.bar(9, 0, width=4) == "[░░░░]"


@pytest.mark.req("DB2-05")
def test_a_session_is_written_as_documented() -> None:
    said = completeness.session(date(2025, 1, 15), expected=6, completed=5, failed=1, extra=0)
    assert said.splitlines() == [
        "Device Session: Jan 15, 2025",
        "Expected: 6 | Completed: 5 | Failed: 1 | Extra: 0",
        "[███████████████████░░░░] 83% Complete",
    ]
    none = completeness.session(date(2025, 12, 1), expected=0, completed=0, failed=0, extra=0)
    assert none.endswith("] n/a")


@pytest.mark.req("DB2-07")
def test_a_camera_that_woke_too_often_is_marked() -> None:
    device = completeness.device
    assert device("Device-002", received=12, expected=10) == (
        "Device-002 (12 received / 10 expected) ⚠️"
    )
    assert device("Device-001", received=10, expected=10) == (
        "Device-001 (10 received / 10 expected)"
    )
