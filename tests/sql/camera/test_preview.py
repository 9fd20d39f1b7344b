"""What a change of a schedule would do, told before anybody asks for it."""

from typing import Any
from uuid import UUID

import pytest

from tests.sql.camera.farm import Farm, call
from tests.sql.camera.people import person


def preview(farm: Farm, device: UUID, cron: str = "0 * * * *") -> dict[str, Any]:
    with person(farm, "viewer") as connection:
        answer: dict[str, Any] = call(
            connection, "fn_preview_schedule_change", device_id=device, new_wake_schedule_cron=cron
        )
        return answer


@pytest.mark.req("DB2-02")
@pytest.mark.parametrize(
    ("instant", "left"),
    [
        ("2026-03-10T14:00:00", "10 hours"),
        ("2026-03-10T13:29:00", "11 hours"),
        ("2026-03-10T13:31:00", "10 hours"),
        ("2026-03-10T23:00:00", "1 hour"),
        ("2026-03-10T23:00:40", "59 minutes"),
        ("2026-03-10T23:58:50", "1 minute"),
        ("2026-03-10T23:59:20", "1 minute"),
        ("2026-03-10T00:00:00", "24 hours"),
    ],
)
def test_the_text_says_how_long_it_takes(farm: Farm, instant: str, left: str) -> None:
    farm.at(f"{instant}+07:00")
    text = preview(farm, farm.device(farm.site()))["text"]
    assert text == f"This change will take effect at midnight ({left} from now)"


@pytest.mark.req("DB2-02")
def test_preview_describes_the_change_and_writes_nothing(farm: Farm) -> None:
    device = farm.device(farm.site(), "0 8,16 * * *")
    assert preview(farm, device) == {
        "device_id": str(device),
        "new_wake_schedule_cron": "0 * * * *",
        "effective_date": "2026-03-11",
        "takes_effect_at": "2026-03-10T17:00:00Z",
        "hours_from_now": 12,
        "text": "This change will take effect at midnight (12 hours from now)",
        "expected_today": 2,
        "expected_tomorrow": 24,
    }
    assert farm.value("select count(*)::int from device_schedule_changes") == 0


@pytest.mark.req("DB2-02")
def test_a_day_that_is_open_keeps_what_it_expects(farm: Farm) -> None:
    site = farm.site()
    early = farm.device(site, "0 8,16 * * *")
    farm.call("fn_midnight_session_opener", site_id=site)
    late = farm.device(site, "0 8,16 * * *")
    assert (preview(farm, early)["expected_today"], preview(farm, late)["expected_today"]) == (2, 0)


@pytest.mark.parametrize(
    ("instant", "hours", "tomorrow", "note"),
    [
        # The night in which the clock goes back is one hour longer.
        ("2026-10-25T00:00:00+02:00", 25, 24, "2026-10-25 has 25 hours"),
        ("2026-10-24T12:00:00+02:00", 12, 25, "2026-10-25 has 25 hours"),
        ("2026-03-29T00:00:00+01:00", 23, 24, "2026-03-29 has 23 hours"),
        ("2026-03-28T12:00:00+01:00", 12, 23, "2026-03-29 has 23 hours"),
        ("2026-06-01T12:00:00+02:00", 12, 24, None),
    ],
)
def test_preview_notes_a_clock_change(
    farm: Farm, instant: str, hours: int, tomorrow: int, note: str | None
) -> None:
    farm.at(instant)
    told = preview(farm, farm.device(farm.site("Europe/Berlin")))
    assert (told["hours_from_now"], told["expected_tomorrow"]) == (hours, tomorrow)
    expected = f"{note} in Europe/Berlin: the clocks change."
    assert told.get("dst_note") == (expected if note else None)


def test_preview_notes_a_clock_change_of_half_an_hour(farm: Farm) -> None:
    farm.at("2026-04-05T00:00:00+11:00")
    told = preview(farm, farm.device(farm.site("Australia/Lord_Howe")))
    assert told["dst_note"] == (
        "2026-04-05 has 24.5 hours in Australia/Lord_Howe: the clocks change."
    )
