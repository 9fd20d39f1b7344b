"""Schedules in words, as people say them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.cloud.console.schedules import cron


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("*/5 * * * *", "every 5 minutes"),
        ("* * * * *", "every minute"),
        ("1-59/5 * * * *", "every 5 minutes from minute 1 on"),
        ("0 * * * *", "every hour"),
        ("15 * * * *", "every hour at minute 15"),
        ("0 */4 * * *", "every 4 hours"),
        ("30 2-23/4 * * *", "every 4 hours from 02:30 on"),
        ("0 6,12,18 * * *", "at 06:00, 12:00 and 18:00 daily"),
        ("0 8,16 * * *", "at 08:00 and 16:00 daily"),
        ("5 8 * * *", "at 08:05 daily"),
        ("0 4-13 * * *", "every hour from 04:00 to 13:00"),
        ("*/30 6-17 * * *", "every 30 minutes from 06:00 to 17:30"),
        ("*/45 * * * *", "every hour at minutes 0 and 45"),
        ("1,2,3,4,5,6,8 3,9 * * *", "14 times a day"),
        ("0 8 * * 1-5", "at 08:00 from Monday to Friday"),
        ("0 8 * * mon,THU", "at 08:00 on Monday and Thursday"),
        ("0 8 * * 0-7", "at 08:00 daily"),
        ("0 8 * * 7", "at 08:00 on Sunday"),
        ("0 8 1,15 * *", "at 08:00 on days 1 and 15 of the month"),
        ("0 8 1 JAN,7 *", "at 08:00 on day 1 of the month in January and July"),
        ("*/10 * * 6-8 *", "every 10 minutes in June, July and August"),
        # What has no short words is shown as it is.
        ("0 8 L * *", "0 8 L * *"),
        ("0 8 * * 5#2", "0 8 * * 5#2"),
        ("0 8 1 * 1", "0 8 1 * 1"),
        ("0  8 * *", "0 8 * *"),
        ("61 8 * * *", "61 8 * * *"),
        (None, "no schedule"),
        ("", "no schedule"),
    ],
)
def test_cron_expression_is_said_in_words(expression: str | None, said: str) -> None:
    assert cron.words(expression) == said


@given(st.text(alphabet="0123456789*/,-LW#MONJA \t", max_size=40))
def test_any_text_has_words_or_stays_itself(expression: str) -> None:
    said = cron.words(expression)
    assert said or not expression.strip()


@given(
    st.sets(st.integers(0, 59), min_size=1, max_size=3),
    st.sets(st.integers(0, 23), min_size=1, max_size=2),
)
def test_listed_times_are_the_times_of_the_schedule(minutes: set[int], hours: set[int]) -> None:
    """What is said as a list names each wake, and no other."""
    expression = f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *"
    said = cron.words(expression)
    if said.startswith("at "):
        for hour in hours:
            for minute in minutes:
                assert f"{hour:02}:{minute:02}" in said
        assert said.count(":") == len(minutes) * len(hours)
