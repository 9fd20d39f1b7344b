"""Pure: how complete a day is, and its text. A figure, never a status (DB2-04, C-75).

`completed` is what the day counts (DB2-03): every wake whose image is here, also one nobody
expected. So an extra wake may make up for a missed one, but the percentage stays at most 100.
"""

from datetime import date
from typing import Literal

Band = Literal["complete", "acceptable", "warning", "alert", "n/a"]

WIDTH = 23
# From this percentage on; below the last one it is an alert.
BANDS: tuple[tuple[int, Band], ...] = ((100, "complete"), (80, "acceptable"), (50, "warning"))
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def band(completed: int, expected: int) -> Band:
    """By the exact share: 99.5 % is not complete. A day that expects nothing is `n/a`."""
    if expected == 0:
        return "n/a"
    for minimum, name in BANDS:
        if completed * 100 >= minimum * expected:
            return name
    return "alert"


def percent(completed: int, expected: int) -> float | None:
    """Exact, also above 100; None if nothing was expected."""
    return round(completed * 100 / expected, 2) if expected else None


def shown(completed: int, expected: int) -> int | None:
    """Whole percent, at most 100. Rounded down, so that 99.5 % is not shown as 100."""
    return min(100, completed * 100 // expected) if expected else None


def bar(completed: int, expected: int, *, width: int = WIDTH) -> str:
    """The share of the width, rounded half up."""
    full = (2 * completed * width + expected) // (2 * expected) if expected else 0
    full = min(width, full)
    return f"[{'█' * full}{'░' * (width - full)}]"


def words(completed: int, expected: int) -> str:
    share = shown(completed, expected)
    return "n/a" if share is None else f"{share}% Complete"


def day(at: date) -> str:
    """Such as Jan 15, 2025, whatever the locale."""
    return f"{_MONTHS[at.month - 1]} {at.day}, {at.year}"


def session(at: date, *, expected: int, completed: int, failed: int, extra: int) -> str:
    """A day of a site in three lines (DB2-05)."""
    return (
        f"Device Session: {day(at)}\n"
        f"Expected: {expected} | Completed: {completed} | Failed: {failed} | Extra: {extra}\n"
        f"{bar(completed, expected)} {words(completed, expected)}"
    )


def device(name: str, *, received: int, expected: int) -> str:
    """A camera's share of a day (DB2-07), with a sign if it woke more often than expected."""
    sign = " ⚠️" if received > expected else ""
    return f"{name} ({received} received / {expected} expected){sign}"
