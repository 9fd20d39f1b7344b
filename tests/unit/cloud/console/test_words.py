from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from farmiq.ui import words

NOW = datetime(2026, 3, 10, 5, 0, tzinfo=UTC)
BANGKOK = ZoneInfo("Asia/Bangkok")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-3, "just now"),
        (0.9, "just now"),
        (1, "1 s ago"),
        (59.99, "59 s ago"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (47 * 3600 + 3599, "47 h ago"),
        (48 * 3600, "2 days ago"),
        (400 * 86400, "400 days ago"),
    ],
)
def test_an_age_is_rounded_down(seconds: float, expected: str) -> None:
    assert words.ago(seconds) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (-0.0, "0"),
        (24.299999, "24.3"),
        (-3.456, "-3.46"),
        (0.0521, "0.052"),
        (100, "100"),
        (12345.678, "12,345.7"),
        (1e12, "1e+12"),
        (0.00001234, "1.23e-05"),
        (float("nan"), "no number"),
        (float("inf"), "no number"),
    ],
)
def test_a_number_is_short(value: float, expected: str) -> None:
    assert words.number(value) == expected


def test_the_title_carries_the_count_of_problems() -> None:
    assert words.title("Latest readings", problems=0) == "Latest readings"
    assert words.title("Latest readings", problems=2) == "(2) Latest readings"


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (datetime(2026, 3, 10, 4, 59, 8, tzinfo=UTC), "11:59:08"),
        (datetime(2026, 3, 9, 17, 0, 0, tzinfo=UTC), "00:00:00"),
        (datetime(2026, 3, 9, 16, 59, 59, tzinfo=UTC), "9 Mar 23:59"),
        (datetime(2025, 12, 31, 23, 0, tzinfo=UTC), "1 Jan 06:00"),
        (datetime(2025, 12, 31, 16, 0, tzinfo=UTC), "31 Dec 2025 23:00"),
    ],
)
def test_an_instant_says_the_day_only_where_it_is_not_today(at: datetime, expected: str) -> None:
    assert words.instant(at, now=NOW, zone=BANGKOK) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Asia/Bangkok", "Asia/Bangkok (UTC+7)"),
        ("America/Sao_Paulo", "America/Sao Paulo (UTC-3)"),
        ("Asia/Kolkata", "Asia/Kolkata (UTC+5:30)"),
        ("UTC", "UTC"),
        ("No/Such_Zone", "UTC"),
        ("../../etc/passwd", "UTC"),
    ],
)
def test_the_zone_says_its_distance_from_utc(name: str, expected: str) -> None:
    assert words.zone_name(words.zone(name), NOW) == expected
